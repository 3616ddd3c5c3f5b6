//! Streams, events and virtual time.

use crate::support::{OK, allocate, allocate_pinned, at, handle, start, start_with};
use cudarc::driver::{result, sys};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use sys::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_READY};

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn work_completes_when_the_clock_passes_its_end() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let address = at(allocate(4));
    driver.write(address, &[0; 4]).expect("it is there");
    let run = KernelRun::new("write").writes(address, 4).takes(MILLISECOND);
    driver.run_kernel(handle(&stream), run.effect(move |memory| memory.write(address, &[7; 4]))).expect("ok");
    let event = stream.record_event(None).expect("an event");
    assert_eq!(event.try_is_complete(), Ok(false));
    assert_eq!(cu!(cuStreamQuery(stream.cu_stream())), CUDA_ERROR_NOT_READY);
    assert_eq!(driver.read(address, 4).expect("it is there"), [0; 4]);
    driver.advance(MILLISECOND);
    assert_eq!(driver.read(address, 4).expect("it is there"), [7; 4]);
    assert_eq!(event.try_is_complete(), Ok(true));
    assert_eq!(cu!(cuStreamQuery(stream.cu_stream())), OK);
    // Nothing of this made the host wait.
    assert_eq!(driver.counts().waits, 0);
}

#[test]
fn waits_advance_the_clock_exactly_and_are_counted() {
    let (driver, context) = start_with(&SimulationConfig::new().call_time(Duration::ZERO));
    let stream = context.new_stream().expect("a stream");
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let first = stream.record_event(timed).expect("an event");
    let (before, waits) = (driver.now(), driver.counts().waits);
    for _ in 0..3 {
        driver.run_kernel(handle(&stream), KernelRun::new("wait").takes(MILLISECOND)).expect("ok");
    }
    let last = stream.record_event(timed).expect("an event");
    last.synchronize().expect("a wait");
    assert_eq!(driver.now() - before, 3 * MILLISECOND);
    assert_eq!(driver.counts().waits - waits, 1);
    assert_eq!(driver.counts().waited, 3 * MILLISECOND);
    let elapsed = first.elapsed_ms(&last).expect("both completed");
    assert!((elapsed - 3.0).abs() < 1e-5, "{elapsed}");
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    driver.run_kernel(handle(&a), KernelRun::new("long").takes(10 * MILLISECOND)).expect("ok");
    let event = a.record_event(None).expect("an event");
    b.wait(&event).expect("a wait");
    driver.run_kernel(handle(&b), KernelRun::new("short").takes(MILLISECOND)).expect("ok");
    let done = b.record_event(None).expect("an event");
    driver.advance(10 * MILLISECOND);
    assert_eq!(event.try_is_complete(), Ok(true));
    assert_eq!(done.try_is_complete(), Ok(false));
    driver.advance(MILLISECOND);
    assert_eq!(done.try_is_complete(), Ok(true));
}

#[test]
fn the_legacy_default_stream_orders_blocking_streams_only() {
    let (driver, context) = start();
    let (mut blocking, mut free) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(cu!(cuStreamCreate(&raw mut blocking, 0)), OK);
    assert_eq!(cu!(cuStreamCreate(&raw mut free, 1)), OK);
    let legacy = context.default_stream();
    driver.run_kernel(0, KernelRun::new("legacy").takes(10 * MILLISECOND)).expect("ok");
    for stream in [blocking, free] {
        let number = stream.expose_provenance() as u64;
        driver.run_kernel(number, KernelRun::new("own").takes(MILLISECOND)).expect("ok");
    }
    driver.advance(2 * MILLISECOND);
    assert_eq!(cu!(cuStreamQuery(free)), OK);
    assert_eq!(cu!(cuStreamQuery(blocking)), CUDA_ERROR_NOT_READY);
    // And the legacy stream comes after the blocking one's work.
    driver.run_kernel(0, KernelRun::new("legacy").takes(Duration::ZERO)).expect("ok");
    legacy.synchronize().expect("a wait");
    assert_eq!(cu!(cuStreamQuery(blocking)), OK);
    for stream in [blocking, free] {
        assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
        assert_eq!(cu!(cuStreamDestroy_v2(stream)), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let (_driver, context) = start();
    let per_thread = std::ptr::without_provenance_mut(2);
    let number = |stream| {
        let mut number = 0;
        assert_eq!(cu!(cuStreamGetId(stream, &raw mut number)), OK);
        number
    };
    let own = number(per_thread);
    assert_eq!(number(per_thread), own);
    let other = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            context.bind_to_thread().expect("a context");
            let mut number = 0;
            let stream = std::ptr::without_provenance_mut(2);
            assert_eq!(cu!(cuStreamGetId(stream, &raw mut number)), OK);
            number
        });
        thread.join().expect("no panic")
    });
    assert_ne!(other, own);
    assert_ne!(number(std::ptr::null_mut()), own);
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let address = at(allocate(1));
    let run = KernelRun::new("write").writes(address, 1).takes(MILLISECOND);
    driver.run_kernel(handle(&stream), run.effect(move |memory| memory.write(address, &[3]))).expect("ok");
    drop(stream);
    assert_eq!(driver.read(address, 1).expect("it is there"), [0xCD]);
    driver.advance(MILLISECOND);
    assert_eq!(driver.read(address, 1).expect("it is there"), [3]);
    assert_eq!(driver.counts().operations, 0);
}

#[test]
fn a_million_streams_do_not_make_the_check_grow() {
    let (driver, _context) = start();
    for _ in 0..5000 {
        let mut stream = std::ptr::null_mut();
        assert_eq!(cu!(cuStreamCreate(&raw mut stream, 1)), OK);
        let number = stream.expose_provenance() as u64;
        driver.run_kernel(number, KernelRun::new("k").takes(Duration::ZERO)).expect("ok");
        assert_eq!(cu!(cuStreamSynchronize(stream)), OK);
        assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
    }
    assert!(driver.counts().queues < 8, "{:?}", driver.counts());
}

#[test]
fn a_kernel_that_never_ends_makes_a_wait_fail() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    driver.run_kernel(handle(&stream), KernelRun::new("hangs").takes(Duration::MAX)).expect("ok");
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), CUDA_ERROR_LAUNCH_TIMEOUT);
    driver.reset(&SimulationConfig::new()).expect("a reset");
}

static CALLED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count_and_call(data: *mut c_void) {
    let mut version = 0;
    let called = cu!(cuDriverGetVersion(&raw mut version));
    assert_eq!(called, sys::CUresult::CUDA_ERROR_NOT_PERMITTED);
    let by = u32::try_from(data.addr()).expect("a small number");
    CALLED.fetch_add(by, Ordering::Relaxed);
}

#[test]
fn host_functions_run_in_order_and_cannot_call_the_driver() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    CALLED.store(0, Ordering::Relaxed);
    driver.run_kernel(handle(&stream), KernelRun::new("first").takes(MILLISECOND)).expect("ok");
    let data = std::ptr::without_provenance_mut(5);
    assert_eq!(cu!(cuLaunchHostFunc(stream.cu_stream(), Some(count_and_call), data)), OK);
    assert_eq!(CALLED.load(Ordering::Relaxed), 0);
    stream.synchronize().expect("a wait");
    assert_eq!(CALLED.load(Ordering::Relaxed), 5);
}

unsafe extern "C" fn meet(data: *mut c_void) {
    // SAFETY: the test passes a pointer to this pair, which outlives the stream's work.
    let (arrived, released) =
        unsafe { &*data.cast::<(mpsc::SyncSender<()>, std::sync::Mutex<mpsc::Receiver<()>>)>() };
    arrived.send(()).expect("the test waits");
    released.lock().expect("no panic").recv().expect("the test answers");
}

#[test]
fn a_host_function_may_wait_for_a_thread_that_calls_the_driver() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let ((arrived, arrival), (release, released)) =
        (mpsc::sync_channel::<()>(1), mpsc::sync_channel::<()>(1));
    let mut pair = (arrived, std::sync::Mutex::new(released));
    let data = (&raw mut pair).cast();
    assert_eq!(cu!(cuLaunchHostFunc(stream.cu_stream(), Some(meet), data)), OK);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| stream.synchronize());
        arrival.recv().expect("the function runs");
        // The function holds no lock of the driver.
        let pinned = allocate_pinned(64);
        assert_eq!(cu!(cuStreamQuery(stream.cu_stream())), CUDA_ERROR_NOT_READY);
        release.send(()).expect("the function waits");
        waiter.join().expect("no panic").expect("a wait");
        assert_eq!(cu!(cuMemFreeHost(pinned)), OK);
    });
    assert_eq!(driver.counts().operations, 0);
}

#[test]
fn a_program_runs_the_same_way_every_time_and_another_seed_runs_another_way() {
    let run = |seed| {
        let (driver, context) = start_with(&SimulationConfig::new().seed(seed));
        let streams: Vec<_> = (0..3).map(|_| context.new_stream().expect("a stream")).collect();
        let buffers: Vec<_> = streams.iter().map(|_| allocate(1 << 16)).collect();
        let mut polls = Vec::new();
        for step in 0..50_u8 {
            let stream = &streams[usize::from(step) % 3];
            let to = buffers[usize::from(step) * 7 % 3];
            assert_eq!(cu!(cuMemsetD8Async(to, step, 1 << 16, stream.cu_stream())), OK);
            let event = stream.record_event(None).expect("an event");
            polls.push((event.try_is_complete(), driver.now()));
        }
        context.synchronize().expect("a wait");
        let bytes = driver.read(at(buffers[0]), 1 << 16).expect("it is there");
        (polls, buffers, driver.now(), driver.races(), driver.all_calls(), bytes[0])
    };
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2).2, first.2);
}

#[test]
fn pageable_copies_to_the_host_wait_and_pinned_ones_do_not() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let device = allocate(1 << 20);
    let pinned = allocate_pinned(1 << 20);
    let waits = driver.counts().waits;
    assert_eq!(cu!(cuMemcpyDtoHAsync_v2(pinned, device, 1 << 20, stream.cu_stream())), OK);
    assert_eq!(cu!(cuStreamQuery(stream.cu_stream())), CUDA_ERROR_NOT_READY);
    assert_eq!(driver.counts().waits, waits);
    let mut pageable = vec![0u8; 1 << 20];
    // SAFETY: the destination has as many bytes as are copied.
    unsafe { result::memcpy_dtoh_async(&mut pageable, device, stream.cu_stream()) }.expect("a copy");
    assert_eq!(driver.counts().waits, waits + 1);
    assert_eq!(pageable, vec![0xCD; 1 << 20]);
    // From pageable memory, the bytes at the time of the call count.
    let mut source = [1u8; 64];
    assert_eq!(cu!(cuMemcpyHtoDAsync_v2(device, source.as_ptr().cast(), 64, stream.cu_stream())), OK);
    source.fill(2);
    stream.synchronize().expect("a wait");
    assert_eq!(driver.read(at(device), 64).expect("it is there"), [1; 64]);
    assert_eq!(source, [2; 64]);
}
