//! Replays through real engines.

use orlop_alloc::backing::{Null, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::{Direct, Pool, Pow2};
use orlop_alloc::{Allocator as _, AllocatorRef};
use orlop_core::Device;
use orlop_lab::LabError;
use orlop_lab::cpu_bench::{PassProgress, Replay, TouchPattern};
use orlop_trace::formats::text::Trace;
use std::sync::Mutex;
use std::time::Duration;

fn engines() -> [AllocatorRef; 4] {
    [
        Direct::new(System::new()).into_ref().erase(),
        Bfc::new(System::new()).into_ref().erase(),
        Pool::new(System::new()).into_ref().erase(),
        Pow2::new(System::new()).into_ref().erase(),
    ]
}

fn trace() -> Trace {
    // Blocks of many sizes from 0, of which every third is never freed.
    let mut text = String::new();
    for id in 0..600 {
        text += &format!("a,{id},{}\n", id * 37 % 9000);
        if id >= 10 && (id - 10) % 3 != 0 {
            text += &format!("f,{}\n", id - 10);
        }
    }
    Trace::parse(text.as_bytes()).expect("a trace")
}

#[test]
fn every_engine_replays_and_gets_everything_back() {
    let trace = trace();
    for allocator in engines() {
        for touch in TouchPattern::ALL {
            for threads in [1, 3] {
                let replay = Replay::new(&trace).named("some").threads(threads).touch(touch).repeat(4);
                let report = replay.run(&allocator).unwrap();
                assert_eq!((report.trace.as_str(), report.passes, report.threads), ("some", 4, threads));
                assert_eq!(report.allocator, allocator.name());
                assert_eq!(report.peak_live, trace.peak().bytes * threads as u64);
                assert!(report.ratio >= 1.0 || threads > 1, "{report:?}");
                assert!(report.ns_per_op > 0.0 && report.cold_ns_per_op.is_some());
                assert_eq!(allocator.stats().live(), 0);
                assert_eq!(allocator.stats().totals.all.live_blocks(), 0);
                allocator.verify().unwrap();
            }
        }
    }
}

#[test]
fn one_pass_is_neither_cold_nor_steady() {
    let report = Replay::new(&trace()).run(&engines()[1]).unwrap();
    assert_eq!((report.passes, report.cold_ns_per_op, report.cold_page_faults), (1, None, None));
    assert!(report.ns_per_op > 0.0);
}

#[test]
fn a_time_limit_leaves_three_passes() {
    let trace = trace();
    let replay = Replay::new(&trace).repeat(1_000_000).max_time(Duration::ZERO);
    assert_eq!(replay.run(&engines()[1]).unwrap().passes, 3);
}

#[test]
fn passes_are_reported_in_order() {
    let (trace, passes) = (trace(), Mutex::new(Vec::new()));
    let watcher = |pass: PassProgress| passes.lock().unwrap().push((pass.done, pass.of));
    Replay::new(&trace).threads(2).repeat(3).watched(&watcher).run(&engines()[3]).unwrap();
    assert_eq!(*passes.lock().unwrap(), [(1, 3), (2, 3), (3, 3)]);
}

#[test]
fn address_space_replays_unless_it_is_touched() {
    let trace = Trace::parse("a,0,80000000000\na,1,40000000000\nf,0\n".as_bytes()).unwrap();
    let allocator = Bfc::new(Null::new(Device::CPU)).into_ref().erase();
    let report = Replay::new(&trace).touch(TouchPattern::None).run(&allocator).unwrap();
    assert_eq!(report.peak_live, 120_000_000_000);
    for threads in [1, 4] {
        for touch in [TouchPattern::First, TouchPattern::Pages, TouchPattern::All] {
            let error = Replay::new(&trace).touch(touch).threads(threads).run(&allocator).unwrap_err();
            assert!(matches!(error, LabError::Untouchable { .. }), "{error}");
            assert_eq!(allocator.stats().live(), 0);
        }
    }
}

#[test]
fn a_full_allocator_is_reported_with_the_operation() {
    let trace = Trace::parse("a,0,1000\nf,0\na,1,1000\na,2,5000\n".as_bytes()).unwrap();
    for threads in [1, 3] {
        let allocator = Bfc::builder(System::new()).limit(4096).build().into_ref().erase();
        let error = Replay::new(&trace).threads(threads).repeat(5).run(&allocator).unwrap_err();
        assert!(matches!(error, LabError::Replay { operation: 4, operations: 4, .. }), "{error}");
        assert!(error.is_out_of_memory());
        assert_eq!(allocator.stats().live(), 0);
    }
}

#[test]
fn the_loop_alone_can_be_measured() {
    let trace = trace();
    assert!(Replay::new(&trace).repeat(8).overhead() > 0.0);
    assert!(Replay::new(&Trace::default()).overhead().abs() < 1e-12);
}

#[test]
fn an_empty_trace_has_no_cost() {
    let report = Replay::new(&Trace::default()).threads(2).repeat(3).run(&engines()[0]).unwrap();
    assert_eq!((report.operations, report.peak_live, report.peak_reserved), (0, 0, 0));
    assert!((report.ratio - 1.0).abs() < 1e-12 && report.ns_per_op.abs() < 1e-12);
}

#[cfg(target_os = "linux")]
#[test]
fn page_faults_and_resident_memory_follow_touched_pages() {
    // 32 MiB, mapped and unmapped in each pass.
    let trace = Trace::parse("a,0,33554432\nf,0\n".as_bytes()).unwrap();
    let allocator = Direct::new(orlop_alloc::backing::named("mmap-4k").unwrap()).into_ref().erase();
    let run = |touch| Replay::new(&trace).touch(touch).repeat(3).run(&allocator).unwrap();
    let (none, all) = (run(TouchPattern::None), run(TouchPattern::All));
    if let (Some(none), Some(all)) = (none.page_faults, all.page_faults) {
        assert!(all >= none + 8000, "{none} and {all} faults");
    }
    if let Some(resident) = all.rss {
        assert!(resident >= 32 << 20);
    }
}
