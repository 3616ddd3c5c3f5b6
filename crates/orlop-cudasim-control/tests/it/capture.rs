//! What a capture forbids, and with which codes.

use crate::support::{OK, allocate, handle, start};
use cudarc::driver::sys;
use orlop_cudasim_control::KernelRun;
use std::ptr;
use sys::CUresult::{
    CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
};
use sys::CUstreamCaptureMode_enum as Mode;

fn begin(stream: sys::CUstream, mode: Mode) {
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, mode)), OK);
}

fn end(stream: sys::CUstream) -> sys::CUresult {
    let mut graph = ptr::null_mut();
    let code = cu!(cuStreamEndCapture(stream, &raw mut graph));
    assert_eq!(graph.is_null(), code != OK);
    code
}

fn create(flags: u32) -> sys::CUstream {
    let mut stream = ptr::null_mut();
    assert_eq!(cu!(cuStreamCreate(&raw mut stream, flags)), OK);
    stream
}

fn event() -> sys::CUevent {
    let mut event = ptr::null_mut();
    assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), OK);
    event
}

#[test]
fn calls_that_may_wait_are_refused_under_global_capture_and_invalidate_it() {
    let (_driver, _context) = start();
    let (stream, other, done) = (create(1), create(1), event());
    let (address, mut pooled) = (allocate(64), 0);
    assert_eq!(cu!(cuMemAllocAsync(&raw mut pooled, 64, other)), OK);
    assert_eq!(cu!(cuEventRecord(done, other)), OK);
    let calls: [(&str, &dyn Fn() -> sys::CUresult); 10] = [
        ("alloc", &|| {
            let mut address = 0;
            cu!(cuMemAlloc_v2(&raw mut address, 64))
        }),
        ("free", &|| cu!(cuMemFree_v2(address))),
        ("host alloc", &|| {
            let mut address = ptr::null_mut();
            cu!(cuMemHostAlloc(&raw mut address, 64, 0))
        }),
        ("event query", &|| cu!(cuEventQuery(done))),
        ("event synchronize", &|| cu!(cuEventSynchronize(done))),
        ("query of another stream", &|| cu!(cuStreamQuery(other))),
        ("context synchronize", &|| cu!(cuCtxSynchronize())),
        ("synchronous copy", &|| cu!(cuMemcpyDtoD_v2(address, address + 32, 8))),
        ("allocation on another stream", &|| {
            let mut address = 0;
            cu!(cuMemAllocAsync(&raw mut address, 64, other))
        }),
        ("free on another stream", &|| cu!(cuMemFreeAsync(pooled, other))),
    ];
    for (name, call) in calls {
        begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_eq!(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "{name}");
        assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "{name}");
        if name == "context synchronize" {
            continue; // Refused in every mode: the context has a capturing stream.
        }
        begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        let code = call();
        assert_eq!(code, OK, "{name}, relaxed");
        assert_eq!(end(stream), OK, "{name}, relaxed");
        if name == "free" {
            assert_eq!(allocate(64), address);
        }
    }
}

/// As driver 580 does: it does not wait.
#[test]
fn a_fill_without_a_stream_is_allowed() {
    let (_driver, _context) = start();
    let (stream, address) = (create(1), allocate(64));
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(cu!(cuMemsetD8_v2(address, 0, 8)), OK);
    assert_eq!(end(stream), OK);
}

#[test]
fn a_thread_may_exchange_its_mode() {
    let (_driver, context) = start();
    let (stream, done) = (create(1), event());
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    // Another thread is not concerned by a thread-local capture.
    let other = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            context.bind_to_thread().expect("a context");
            let mut event = ptr::null_mut();
            assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), OK);
            cu!(cuEventQuery(event))
        });
        thread.join().expect("no panic")
    });
    assert_eq!(other, OK);
    let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)), OK);
    assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(cu!(cuEventQuery(done)), OK);
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)), OK);
    assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(end(stream), OK);
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let other = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            context.bind_to_thread().expect("a context");
            cu!(cuCtxSynchronize())
        });
        thread.join().expect("no panic")
    });
    assert_eq!(other, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn the_capturing_stream_and_its_events_cannot_be_waited_for() {
    let (_driver, _context) = start();
    let (stream, inside) = (create(1), event());
    for call in [|stream, _| cu!(cuStreamSynchronize(stream)), |stream, _| cu!(cuStreamQuery(stream))] {
        begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_eq!(call(stream, inside), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        assert_eq!(cu!(cuStreamIsCapturing(stream, &raw mut status)), OK);
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    for call in [|event| cu!(cuEventQuery(event)), |event| cu!(cuEventSynchronize(event))] {
        begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_eq!(cu!(cuEventRecord(inside, stream)), OK);
        assert_eq!(call(inside), CUDA_ERROR_CAPTURED_EVENT);
        assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

#[test]
fn dependencies_do_not_cross_the_boundary() {
    let (driver, _context) = start();
    let (stream, other) = (create(1), create(1));
    let (outside, inside) = (event(), event());
    assert_eq!(cu!(cuEventRecord(outside, other)), OK);
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(cu!(cuStreamWaitEvent(stream, outside, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Two captures do not merge.
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    begin(other, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, stream)), OK);
    assert_eq!(cu!(cuStreamWaitEvent(other, inside, 0)), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    for stream in [stream, other] {
        assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    // A stream that joined must be joined back, and cannot end the capture.
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, stream)), OK);
    assert_eq!(cu!(cuStreamWaitEvent(other, inside, 0)), OK);
    let number = other.expose_provenance() as u64;
    driver.run_kernel(number, KernelRun::new("k")).expect("ok");
    assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, stream)), OK);
    assert_eq!(cu!(cuStreamWaitEvent(other, inside, 0)), OK);
    assert_eq!(end(other), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_eq!(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn the_legacy_stream_cannot_capture_or_wait_for_a_capture() {
    let (_driver, context) = start();
    let blocking = create(0);
    let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let legacy = context.default_stream().cu_stream();
    assert_eq!(cu!(cuStreamBeginCapture_v2(legacy, mode)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    begin(blocking, mode);
    assert_eq!(cu!(cuStreamBeginCapture_v2(blocking, mode)), CUDA_ERROR_ILLEGAL_STATE);
    let address = 0;
    let event = event();
    assert_eq!(cu!(cuEventRecord(event, legacy)), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(address, 0);
    assert_eq!(end(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(end(blocking), CUDA_ERROR_ILLEGAL_STATE);
}

#[test]
fn only_the_thread_that_began_ends_a_capture() {
    let (_driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    begin(stream.cu_stream(), Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let code = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            context.bind_to_thread().expect("a context");
            end(stream.cu_stream())
        });
        thread.join().expect("no panic")
    });
    assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_eq!(end(stream.cu_stream()), OK);
    assert!(handle(&stream) != 0);
}

#[test]
fn the_capture_has_an_id_that_its_streams_share() {
    let (_driver, _context) = start();
    let (stream, other, inside) = (create(1), create(1), event());
    let info = |stream| {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut count) = (0, 0);
        let (none, no_edges, no_graph) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let code = cu!(cuStreamGetCaptureInfo_v3(
            stream,
            &raw mut status,
            &raw mut id,
            no_graph,
            none,
            no_edges,
            &raw mut count
        ));
        assert_eq!(code, OK);
        (status, id, count)
    };
    assert_eq!(info(stream).0, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    let (status, id, count) = info(stream);
    assert_eq!((status, count), (sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, 0));
    assert_eq!(cu!(cuEventRecord(inside, stream)), OK);
    assert_eq!(cu!(cuStreamWaitEvent(other, inside, 0)), OK);
    assert_eq!(info(other).1, id);
    assert_eq!(end(stream), OK);
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_ne!(info(stream).1, id);
    assert_eq!(end(stream), OK);
}
