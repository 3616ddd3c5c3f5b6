//! What adaptors do with what they pass on, and programs under failures of their own making.

use crate::matrix::ADAPTORS;
use orlop_alloc::adaptor::{Failing, Limit, Rule};
use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Request, Tag};
use orlop_core::{Alignment, MemoryKind, StreamId};
use orlop_testkit::model::RequestOutcome;
use orlop_testkit::spies::{RecordedCall, Spy};
use orlop_testkit::{Model, ProgramOp, ProgramRequest, SuiteProfile};
use std::num::NonZeroU64;

/// Everything a request says arrives below every adaptor, and the block comes back with its streams.
#[test]
fn requests_and_stream_uses_pass_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let (spy, log) = Spy::new(Direct::engine(System::new()));
        let allocator = adapt(AllocatorRef::new(spy).erase());
        let request = Request::new(1000)
            .align(Alignment::PLANNED)
            .kind(MemoryKind::Workspace)
            .stream(StreamId::new(9))
            .freed_before(17)
            .tag(Tag::new("passing"))
            .zeroed()
            .no_retry();
        let block = allocator.allocate(&request).unwrap();
        let id = block.id();
        block.record_stream(StreamId::new(4)).unwrap();
        drop(block);
        let seen = log.take();
        let allocated = seen.iter().any(|seen| {
            matches!(seen, RecordedCall::Allocated { request: asked, id: given, .. }
                if *asked == request && *given == id)
        });
        assert!(allocated, "{name}: {seen:?}");
        let returned = seen.iter().any(|seen| {
            matches!(seen, RecordedCall::Returned { id: back, uses, accepted: true, .. }
                if *back == id && uses[..] == [StreamId::new(4)])
        });
        assert!(returned, "{name}: {seen:?}");
    }
}

/// A bare pointer that was given away comes back below every adaptor that can take it, with its streams or
/// as a bare pointer.
#[test]
fn bare_pointers_pass_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let (spy, log) = Spy::new(Bfc::builder(System::new()).build_engine());
        let allocator = adapt(AllocatorRef::new(spy).erase());
        assert!(allocator.has_raw_deleter(), "{name}");
        let ptr = allocator.allocate(&Request::new(1000)).unwrap().into_raw_ptr().unwrap();
        // SAFETY: given away just now, and freed once.
        unsafe { allocator.free(ptr, None) }.unwrap();
        let back = log.take().into_iter().any(|seen| {
            matches!(
                seen,
                RecordedCall::Returned { accepted: true, .. }
                    | RecordedCall::ReturnedRaw { accepted: true, .. }
            )
        });
        assert!(back, "{name}");
        assert_eq!(allocator.stats().live(), 0, "{name}");
    }
}

/// Trimming, frontiers and the questions of the trait reach the engine.
#[test]
fn trim_reaches_the_engine_under_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let allocator = adapt(Bfc::builder(System::new()).build().erase());
        drop(allocator.allocate(&Request::new(1000)).unwrap());
        assert!(allocator.stats().usage.reserved > 0, "{name}");
        assert_eq!(allocator.trim(0), 2 << 20, "{name}");
        assert!(allocator.tracks_sizes(), "{name}");
    }
}

/// Requests that fail by rule leave no trace, whatever the engine below.
#[test]
fn programs_survive_failures_above_the_engine() {
    let third = NonZeroU64::new(3).map(Rule::Every).unwrap();
    let engines = [Direct::new(System::new()).erase(), Bfc::builder(System::new()).build().erase()];
    for engine in engines {
        let failing =
            AllocatorRef::new(Failing::new(engine.clone(), [third, Rule::LargerThan(50_000)])).erase();
        let mut model = Model::new(failing, SuiteProfile::strict());
        let mut refused = 0;
        for step in 0..300usize {
            let ask =
                ProgramRequest::new(1 + step * 331 % 60_000).align_log2(u32::try_from(step % 13).unwrap());
            if let Some(RequestOutcome::Refused) = model.step(&ProgramOp::Allocate(ask)).unwrap() {
                refused += 1;
            }
            if step % 4 == 3 {
                model.step(&ProgramOp::FreeOldest).unwrap();
            }
        }
        assert!(refused > 100, "{refused}");
        model.finish().unwrap();
        assert_eq!(engine.stats().live(), 0);
    }
}

/// At no step does more live than the limit, and every byte comes back to it.
#[test]
fn a_limit_holds_under_programs() {
    const LIMIT: usize = 100_000;
    let limit = AllocatorRef::new(Limit::new(Bfc::builder(System::new()).build_engine(), LIMIT));
    let mut model = Model::new(limit.clone().erase(), SuiteProfile::strict().limited());
    for step in 0..400usize {
        model.step(&ProgramOp::Allocate(ProgramRequest::new(1 + step * 997 % 20_000))).unwrap();
        assert!(limit.used() <= LIMIT);
        assert_eq!(limit.used() as u64, limit.stats().live());
        if step % 3 != 0 {
            model.step(&ProgramOp::Free(u16::try_from(step % 7).unwrap())).unwrap();
        }
    }
    model.finish().unwrap();
    assert_eq!(limit.used(), 0);
}
