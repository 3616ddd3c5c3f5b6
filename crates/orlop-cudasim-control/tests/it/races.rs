//! The race check: races that are there are found, and no others.

use crate::support::{OK, allocate, allocate_pinned, at, handle, start, start_with};
use orlop_cudasim_control::{KernelAccess, KernelRun, SimulationConfig};

fn write(name: &str, address: usize, bytes: usize) -> KernelRun {
    KernelRun::new(name).writes(address, bytes)
}

fn read(name: &str, address: usize, bytes: usize) -> KernelRun {
    KernelRun::new(name).reads(address, bytes)
}

#[test]
fn two_unordered_writes_are_reported_with_both_accesses() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let address = at(allocate(4096));
    driver.run_kernel(handle(&a), write("first", address, 1024)).expect("ok");
    // Long after the first has completed in time, nothing orders the second after it.
    driver.advance(std::time::Duration::from_secs(1));
    driver.run_kernel(handle(&b), write("second", address + 512, 1024)).expect("ok");
    let races = driver.take_races();
    assert_eq!(races.len(), 1);
    let race = &races[0];
    assert_eq!((race.earlier.name.as_str(), race.earlier.stream), ("first", Some(handle(&a))));
    assert_eq!((race.later.name.as_str(), race.later.stream), ("second", Some(handle(&b))));
    assert_eq!((race.later.address, race.later.bytes), (address + 512, 1024));
    assert!(race.earlier.is_write && race.later.time > race.earlier.time);
    let text = race.to_string();
    assert!(text.contains("second writes 1024 bytes") && text.contains("first writes 1024 bytes"), "{text}");
    assert_eq!((driver.races(), driver.counts().races), (Vec::new(), 0));
}

#[test]
fn events_and_waits_order() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let address = at(allocate(4096));
    driver.run_kernel(handle(&a), write("a", address, 64)).expect("ok");
    b.wait(&a.record_event(None).expect("an event")).expect("a wait");
    driver.run_kernel(handle(&b), write("b", address, 64)).expect("ok");
    b.synchronize().expect("a wait");
    driver.run_kernel(handle(&a), write("a", address, 64)).expect("ok");
    a.record_event(None).expect("an event").synchronize().expect("a wait");
    driver.run_kernel(handle(&b), read("b", address, 64)).expect("ok");
    driver.run_kernel(handle(&a), read("a", address, 64)).expect("ok");
    assert_eq!(driver.races(), []);
    // Two reads do not race, but a write after them does, unless it is ordered after both.
    driver.run_kernel(handle(&b), write("b", address, 64)).expect("ok");
    let races = driver.take_races();
    assert_eq!(races.len(), 1);
    assert!(!races[0].earlier.is_write && races[0].later.is_write);
}

#[test]
fn a_query_that_says_done_orders_and_time_alone_does_not() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let address = at(allocate(64));
    for queried in [true, false] {
        driver.run_kernel(handle(&a), write("a", address, 64)).expect("ok");
        let event = a.record_event(None).expect("an event");
        driver.advance(std::time::Duration::from_millis(1));
        if queried {
            assert_eq!(event.try_is_complete(), Ok(true));
        }
        driver.run_kernel(handle(&b), write("b", address, 64)).expect("ok");
        assert_eq!(driver.take_races().is_empty(), queried);
        context.synchronize().expect("a wait");
    }
}

#[test]
fn the_host_races_on_pinned_memory_that_a_copy_still_uses() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let device = allocate(4096);
    let pinned = allocate_pinned(4096);
    let host = pinned.expose_provenance();
    let copy = || cu!(cuMemcpyHtoDAsync_v2(device, pinned, 4096, stream.cu_stream()));
    driver.host_access("fill", KernelAccess::write(host, 4096)).expect("ok");
    assert_eq!(copy(), OK);
    driver.host_access("look", KernelAccess::read(host, 4096)).expect("ok");
    assert_eq!(driver.races(), []);
    driver.host_access("refill", KernelAccess::write(host + 4000, 8)).expect("ok");
    let races = driver.take_races();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].later.stream, races[0].earlier.name.as_str()), (None, "cuMemcpyHtoDAsync"));
    stream.synchronize().expect("a wait");
    driver.host_access("refill", KernelAccess::write(host, 4096)).expect("ok");
    assert_eq!(copy(), OK);
    assert_eq!(driver.races(), []);
}

#[test]
fn a_wait_for_the_device_covers_streams_that_are_gone() {
    let (driver, context) = start();
    let address = at(allocate(64));
    let other = context.new_stream().expect("a stream");
    for is_awaited in [true, false] {
        let stream = context.new_stream().expect("a stream");
        driver.run_kernel(handle(&stream), write("gone", address, 64)).expect("ok");
        drop(stream);
        driver.advance(std::time::Duration::from_millis(1));
        if is_awaited {
            assert_eq!(cu!(cuCtxSynchronize()), OK);
        }
        driver.run_kernel(handle(&other), write("other", address, 64)).expect("ok");
        assert_eq!(driver.take_races().is_empty(), is_awaited);
        assert_eq!(cu!(cuCtxSynchronize()), OK);
    }
    // The legacy default stream comes after blocking streams that are gone, and not after others.
    for flags in [0, 1] {
        let mut stream = std::ptr::null_mut();
        assert_eq!(cu!(cuStreamCreate(&raw mut stream, flags)), OK);
        driver.run_kernel(stream.expose_provenance() as u64, write("gone", address, 64)).expect("ok");
        assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
        driver.advance(std::time::Duration::from_millis(1));
        driver.run_kernel(0, write("legacy", address, 64)).expect("ok");
        assert_eq!(driver.take_races().len(), usize::try_from(flags).expect("small"));
        assert_eq!(cu!(cuCtxSynchronize()), OK);
    }
}

#[test]
fn a_free_in_stream_order_races_with_later_use_elsewhere() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let mut address = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 4096, a.cu_stream())), OK);
    // Use on another stream before the allocation is ordered before it.
    driver.run_kernel(handle(&b), write("early", at(address), 64)).expect("ok");
    assert_eq!(driver.take_races()[0].earlier.name, "cuMemAllocAsync");
    b.wait(&a.record_event(None).expect("an event")).expect("a wait");
    driver.run_kernel(handle(&b), write("late", at(address), 64)).expect("ok");
    assert_eq!(driver.races(), []);
    assert_eq!(cu!(cuMemFreeAsync(address, a.cu_stream())), OK);
    let races = driver.take_races();
    assert_eq!((races[0].earlier.name.as_str(), races[0].later.name.as_str()), ("late", "cuMemFreeAsync"));
}

/// Not by a promise: only if it is asked for.
#[test]
fn a_synchronous_free_waits_for_every_stream() {
    for waits in [true, false] {
        let (driver, context) = start_with(&SimulationConfig::new().waiting_frees(waits));
        let stream = context.new_stream().expect("a stream");
        let address = allocate(4096);
        let run = write("long", at(address), 4096).takes(std::time::Duration::from_millis(5));
        driver.run_kernel(handle(&stream), run).expect("ok");
        assert_eq!(cu!(cuMemFree_v2(address)), OK);
        if !waits {
            let races = driver.take_races();
            assert_eq!((&*races[0].earlier.name, &*races[0].later.name), ("long", "cuMemFree"));
            continue;
        }
        assert!(driver.counts().waited >= std::time::Duration::from_millis(4));
        assert_eq!((driver.races(), driver.counts().ranges), (Vec::new(), 0));
    }
}

/// Memory of the program that the device uses no more, as above.
#[test]
fn host_memory_is_unregistered_without_a_wait() {
    for waits in [true, false] {
        let (driver, context) = start_with(&SimulationConfig::new().waiting_frees(waits));
        let stream = context.new_stream().expect("a stream");
        let mut bytes = vec![0_u8; 4096];
        let own = bytes.as_mut_ptr().cast::<std::ffi::c_void>();
        assert_eq!(cu!(cuMemHostRegister_v2(own, 4096, 0)), OK);
        let run = write("long", own.expose_provenance(), 4096).takes(std::time::Duration::from_millis(5));
        driver.run_kernel(handle(&stream), run).expect("ok");
        assert_eq!(cu!(cuMemHostUnregister(own)), OK);
        let races = driver.take_races();
        if waits {
            assert_eq!(races, []);
        } else {
            assert_eq!((&*races[0].earlier.name, &*races[0].later.name), ("long", "cuMemHostUnregister"));
        }
    }
}

#[test]
fn work_on_memory_that_was_freed_under_it_is_an_illegal_address() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let mut address = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 4096, a.cu_stream())), OK);
    a.synchronize().expect("a wait");
    let run = write("long", at(address), 64).takes(std::time::Duration::from_millis(5));
    driver.run_kernel(handle(&b), run).expect("ok");
    assert_eq!(cu!(cuMemFreeAsync(address, a.cu_stream())), OK);
    assert_eq!(driver.take_races().len(), 1);
    let code = cu!(cuStreamSynchronize(b.cu_stream()));
    assert_eq!(code, cudarc::driver::sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    // The error stays.
    let mut again = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut again, 64)), code);
    assert_eq!(cu!(cuCtxSynchronize()), code);
}
