//! Adaptors: forwarding, and programs with failures that the adaptors cause.

use crate::matrix::ADAPTORS;
use orlop_alloc::adaptor::{Decision, Failing, Hardened, Hardening, Limit, Retry, Rule, Tracking, Waiting};
use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Request, Tag, engine_support::RawBlock};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use orlop_testkit::model::RequestOutcome;
use orlop_testkit::recording_mock::{RecordedCall, RecordingMock};
use orlop_testkit::{
    AllocatorModel, ConformanceFault, ProgramOp, ProgramRequest, SuiteProfile, check_forwarding,
};
use std::num::NonZeroU64;
use std::time::Duration;

/// No adaptor drops a method of its upstream that it does not implement.
#[test]
fn every_adaptor_forwards_what_it_does_not_implement() {
    let check = |name: &str, own: &[&str], result: Result<(), ConformanceFault>| {
        result.unwrap_or_else(|fault| panic!("{name} (own: {own:?}): {fault}"));
    };
    macro_rules! check {
        ($wrap:expr, $own:expr) => {
            check(stringify!($wrap), $own, check_forwarding($wrap, $own))
        };
    }
    check!(|upstream| Failing::new(upstream, []), &["grow_in_place", "name"]);
    check!(
        |upstream| Limit::new(upstream, 1 << 20),
        &["deallocate", "deallocate_raw", "grow_in_place", "name"]
    );
    check!(|upstream| Retry::new(upstream, 2, |_, _, _| Decision::Retry), &[]);
    check!(
        |upstream| Waiting::new(upstream, Duration::from_millis(1)),
        &["deallocate", "deallocate_raw", "set_safe_frontier"]
    );
    let tracked = [
        "allocated_size_slow",
        "deallocate_raw",
        "describe",
        "find",
        "grow_in_place",
        "has_raw_deleter",
        "name",
        "reset_peak",
        "tag_uses",
        "has_tracked_sizes",
        "usage",
    ];
    check!(Tracking::new, &tracked);
    let hardened = [
        "allocated_size_slow",
        "deallocate_raw",
        "find",
        "grow_in_place",
        "has_raw_deleter",
        "name",
        "reset_peak",
        "semantics",
        "has_tracked_sizes",
        "trim",
        "usage",
        "verify",
    ];
    check!(|upstream| Hardened::new(upstream, Hardening::new()), &hardened);
    check!(|upstream| RecordingMock::new(upstream).0, &["deallocate", "deallocate_raw", "semantics", "trim"]);
    // A handle is an adaptor too. Settings cannot be changed through a shared one.
    check!(|upstream| AllocatorRef::new(upstream).erase(), &["on_shared", "set_statistics"]);
}

/// An adaptor that forgets a method is found, by the name of the method.
#[test]
fn an_adaptor_that_drops_a_method_is_found() {
    #[derive(Debug)]
    struct Forgetful<A>(A);
    // SAFETY: blocks are the upstream's, unchanged, and return to it.
    unsafe impl<A: Allocator> Allocator for Forgetful<A> {
        fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
            self.0.allocate(request)
        }

        unsafe fn deallocate(&self, block: RawBlock) -> orlop_alloc::Result<()> {
            // SAFETY: guaranteed by the caller; the upstream's block.
            unsafe { self.0.deallocate(block) }
        }

        fn device(&self) -> Device {
            self.0.device()
        }

        fn name(&self) -> &str {
            self.0.name()
        }

        fn usage(&self) -> orlop_alloc::Usage {
            self.0.usage()
        }
    }
    let fault = check_forwarding(Forgetful, &[]).unwrap_err();
    let ConformanceFault::NotForwarded { methods } = fault else { panic!("{fault}") };
    for method in ["describe", "find", "verify", "watch_regions"] {
        assert!(methods.contains(&method), "{methods:?}");
    }
    assert!(!methods.contains(&"usage"));
}

/// The complete request reaches the allocator under every adaptor, and the block returns with its streams.
#[test]
fn requests_and_stream_uses_pass_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let (spy, log) = RecordingMock::new(Direct::new(System::new()));
        let allocator = adapt(AllocatorRef::new(spy).erase());
        let request = Request::new(1000)
            .align(Alignment::PLANNED)
            .kind(MemoryKind::Workspace)
            .stream(StreamId::from_raw(9))
            .freed_before(17)
            .tag(Tag::new("passing"))
            .zeroed()
            .no_retry();
        let block = allocator.allocate(&request).unwrap();
        let id = block.id();
        block.record_stream(StreamId::from_raw(4)).unwrap();
        drop(block);
        let seen = log.take();
        let allocated = seen.iter().any(|seen| {
            matches!(seen, RecordedCall::Allocated { request: asked, id: given, .. }
                if *asked == request && *given == id)
        });
        assert!(allocated, "{name}: {seen:?}");
        let returned = seen.iter().any(|seen| {
            matches!(seen, RecordedCall::Returned { id: back, uses, accepted: true, .. }
                if *back == id && uses[..] == [StreamId::from_raw(4)])
        });
        assert!(returned, "{name}: {seen:?}");
    }
}

/// A raw pointer reaches the allocator under every adaptor that supports it, with its streams or as a raw
/// pointer.
#[test]
fn bare_pointers_pass_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let (spy, log) = RecordingMock::new(Bfc::new(System::new()));
        let allocator = adapt(AllocatorRef::new(spy).erase());
        assert!(allocator.has_raw_deleter(), "{name}");
        let ptr = allocator.allocate(&Request::new(1000)).unwrap().into_raw_ptr().unwrap();
        // SAFETY: just converted, and freed once.
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

/// Trimming, frontiers and the queries of the trait reach the engine.
#[test]
fn trim_reaches_the_engine_under_every_adaptor() {
    for (name, adapt) in ADAPTORS {
        let allocator = adapt(Bfc::new(System::new()).into_ref().erase());
        drop(allocator.allocate(&Request::new(1000)).unwrap());
        assert!(allocator.stats().usage.reserved > 0, "{name}");
        assert_eq!(allocator.trim(0), 2 << 20, "{name}");
        assert!(allocator.has_tracked_sizes(), "{name}");
    }
}

/// Requests that fail by an adaptor's rule have no effect, whatever the engine below.
#[test]
fn programs_survive_failures_above_the_engine() {
    let third = NonZeroU64::new(3).map(Rule::Every).unwrap();
    let engines = [Direct::new(System::new()).into_ref().erase(), Bfc::new(System::new()).into_ref().erase()];
    for engine in engines {
        let failing = Failing::new(engine.clone(), [third, Rule::LargerThan(50_000)]).into_ref().erase();
        let mut model = AllocatorModel::new(failing, SuiteProfile::strict());
        let mut refused = 0;
        for step in 0..300usize {
            let request =
                ProgramRequest::new(1 + step * 331 % 60_000).align_log2(u32::try_from(step % 13).unwrap());
            if let Some(RequestOutcome::Refused) = model.step(&ProgramOp::Allocate(request)).unwrap() {
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

/// At no step are there more live bytes than the limit, and every byte is returned to it.
#[test]
fn a_limit_holds_under_programs() {
    const LIMIT: usize = 100_000;
    let limit = Limit::new(Bfc::new(System::new()), LIMIT).into_ref();
    let mut model = AllocatorModel::new(limit.clone().erase(), SuiteProfile::strict().limited());
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
