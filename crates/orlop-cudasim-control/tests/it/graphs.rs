//! Captured work, replayed.

use crate::support::{OK, allocate, at, handle, start};
use cudarc::driver::sys;
use orlop_cudasim_control::KernelRun;
use std::ptr;
use std::sync::Arc;

fn capture(
    stream: &Arc<cudarc::driver::CudaStream>,
    work: impl FnOnce(),
) -> (sys::CUgraph, sys::CUgraphExec) {
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).expect("a capture");
    work();
    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(cuStreamEndCapture(stream.cu_stream(), &raw mut graph)), OK);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)), OK);
    (graph, executable)
}

#[test]
fn a_launch_replays_what_was_captured() {
    let (driver, context) = start();
    let (stream, side) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let (a, b) = (allocate(64), allocate(64));
    driver.write(at(a), &[0; 64]).expect("it is there");
    let (graph, executable) = capture(&stream, || {
        let number = at(a);
        let add = KernelRun::new("add").writes(number, 1);
        let add = add.effect(move |memory| {
            let value = memory.read(number, 1)[0];
            memory.write(number, &[value + 1]);
        });
        driver.run_kernel(handle(&stream), add).expect("ok");
        // A fork to another stream and back.
        side.wait(&stream.record_event(None).expect("an event")).expect("a wait");
        assert_eq!(cu!(cuMemcpyDtoDAsync_v2(b, a, 64, side.cu_stream())), OK);
        stream.wait(&side.record_event(None).expect("an event")).expect("a wait");
        assert_eq!(cu!(cuMemsetD8Async(a + 8, 5, 8, stream.cu_stream())), OK);
    });
    // Nothing has run yet.
    stream.synchronize().expect("a wait");
    assert_eq!(driver.read(at(a), 1).expect("it is there"), [0]);
    for _ in 0..3 {
        assert_eq!(cu!(cuGraphLaunch(executable, stream.cu_stream())), OK);
    }
    // A launch elsewhere comes after the last one, by itself.
    assert_eq!(cu!(cuGraphLaunch(executable, side.cu_stream())), OK);
    side.synchronize().expect("a wait");
    assert_eq!(driver.read(at(b), 1).expect("it is there"), [4]);
    assert_eq!(driver.read(at(a) + 8, 8).expect("it is there"), [5; 8]);
    assert_eq!(driver.races(), []);
    assert_eq!(cu!(cuGraphDestroy(graph)), OK);
    assert_eq!(cu!(cuGraphExecDestroy(executable)), OK);
    assert_eq!(driver.counts().graphs, 0);
}

#[test]
fn unordered_branches_race_in_every_launch() {
    let (driver, context) = start();
    let (stream, side) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let a = at(allocate(64));
    let (_, executable) = capture(&stream, || {
        side.wait(&stream.record_event(None).expect("an event")).expect("a wait");
        for stream in [&stream, &side] {
            driver.run_kernel(handle(stream), KernelRun::new("k").writes(a, 64)).expect("ok");
        }
        stream.wait(&side.record_event(None).expect("an event")).expect("a wait");
    });
    assert_eq!(driver.races(), []);
    for launches in 1..=3 {
        assert_eq!(cu!(cuGraphLaunch(executable, stream.cu_stream())), OK);
        assert_eq!(driver.races().len(), launches);
    }
    // Work after a launch is ordered after all of it.
    driver.run_kernel(handle(&stream), KernelRun::new("after").writes(a, 64)).expect("ok");
    assert_eq!(driver.races().len(), 3);
}

#[test]
fn memory_allocated_in_a_capture_stays_with_the_graph() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let mut address = 0;
    let (graph, executable) = capture(&stream, || {
        assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 4096, stream.cu_stream())), OK);
        assert_eq!(cu!(cuMemsetD8Async(address, 1, 4096, stream.cu_stream())), OK);
        assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
    });
    for _ in 0..2 {
        assert_eq!(cu!(cuGraphLaunch(executable, stream.cu_stream())), OK);
    }
    stream.synchronize().expect("a wait");
    assert_eq!(driver.read(at(address), 4096).expect("it is there"), [1; 4096]);
    assert_eq!(cu!(cuGraphDestroy(graph)), OK);
    assert_eq!(driver.live_allocations().len(), 1);
    assert_eq!(cu!(cuGraphExecDestroy(executable)), OK);
    assert_eq!((driver.live_allocations(), driver.races()), (Vec::new(), Vec::new()));
}

#[test]
fn a_graph_is_captured_into_another() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let a = allocate(8);
    let (_, inner) = capture(&stream, || {
        assert_eq!(cu!(cuMemsetD8Async(a, 1, 8, stream.cu_stream())), OK);
    });
    let (_, outer) = capture(&stream, || {
        assert_eq!(cu!(cuGraphLaunch(inner, stream.cu_stream())), OK);
        assert_eq!(cu!(cuMemsetD8Async(a, 2, 4, stream.cu_stream())), OK);
    });
    assert_eq!(cu!(cuGraphLaunch(outer, stream.cu_stream())), OK);
    stream.synchronize().expect("a wait");
    assert_eq!(driver.read(at(a), 8).expect("it is there"), [2, 2, 2, 2, 1, 1, 1, 1]);
    assert_eq!(driver.races(), []);
}
