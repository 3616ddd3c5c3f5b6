//! Pressure callbacks, and inspection of the engine by code that uses its allocator.

use orlop_alloc::{Allocator, Error, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, NullDevice, Policy, TorchConf};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

#[test]
fn a_request_without_retry_runs_no_callback() {
    let device = NullDevice::new(Device::cuda(0), 32 << 20);
    let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    allocator.on_pressure(move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    });
    let request = Request::new(64 << 20);
    assert!(allocator.allocate(&request.no_retry()).is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert!(allocator.allocate(&request).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// With `throw_on_cudamalloc_oom`, a request beyond the device is not counted. One beyond a limit is.
#[test]
fn a_request_that_a_callback_makes_room_for_is_not_counted_as_failed() {
    for throw_on_oom in [false, true] {
        let mut conf = TorchConf::default();
        conf.throw_on_oom = throw_on_oom;
        let device = NullDevice::new(Device::cuda(0), 64 << 20);
        let allocator = DeviceAllocator::new(device, Policy::torch(&conf)).into_ref();
        allocator.set_memory_fraction(0.5);
        let request = Request::new(20 << 20);
        let held = Mutex::new(Some(allocator.allocate(&request).unwrap()));
        allocator.on_pressure(move || held.lock().expect("no panic").take().is_some());
        let served = allocator.allocate(&request).unwrap();
        assert_eq!(allocator.device_stats().num_ooms, 0, "throw_on_oom: {throw_on_oom}");
        assert!(allocator.allocate(&request).is_err());
        assert_eq!(allocator.device_stats().num_ooms, 1, "throw_on_oom: {throw_on_oom}");
        drop(served);
    }
}

#[test]
fn a_request_beyond_all_addresses_is_counted_once() {
    let device = NullDevice::new(Device::cuda(0), 64 << 20);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref();
    let block = allocator.allocate(&Request::new(8)).unwrap();
    // The engine gets it back with the next request.
    allocator.with_engine(|_| drop(block));
    assert!(allocator.allocate(&Request::new(usize::MAX)).is_err());
    assert_eq!(allocator.device_stats().num_ooms, 1);
}

#[test]
fn an_inspection_that_uses_the_allocator_is_refused() {
    let device = DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), Policy::orlop()).into_ref();
    let inspected = catch_unwind(AssertUnwindSafe(|| device.with_engine(|_| device.stats())));
    assert!(inspected.is_err(), "it would wait for itself");
    device
        .with_engine(|_| assert!(matches!(device.allocate(&Request::new(8)), Err(Error::Reentrant { .. }))));
    assert!(device.allocate(&Request::new(8)).is_ok());
    device.verify().unwrap();
}

/// Each thread inspects an allocator, and meanwhile makes a request to another one that fails, whose callback
/// needs what the other thread inspects.
#[test]
fn no_callback_runs_inside_an_engine() {
    let make =
        || DeviceAllocator::new(NullDevice::new(Device::cuda(0), 32 << 20), Policy::orlop()).into_ref();
    let inspected = [make(), make()];
    let failing = make();
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, trimmed) = (Arc::clone(&calls), inspected.clone());
    failing.on_pressure(move || {
        count.fetch_add(1, Ordering::Relaxed);
        trimmed.iter().map(|allocator| allocator.usage().reserved).sum::<u64>() > 0
    });
    let barrier = Arc::new(Barrier::new(2));
    let (sender, ended) = mpsc::channel();
    for allocator in inspected {
        let (failing, barrier, sender) = (failing.clone(), Arc::clone(&barrier), sender.clone());
        thread::spawn(move || {
            allocator.with_engine(|_| {
                barrier.wait();
                assert!(failing.allocate(&Request::new(64 << 20)).is_err_and(|e| e.is_out_of_memory()));
                barrier.wait();
            });
            // The other end is gone if this test has failed.
            let _sent = sender.send(());
        });
    }
    for _ in 0..2 {
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(()), "a deadlock, or a panic");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert!(failing.allocate(&Request::new(64 << 20)).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}
