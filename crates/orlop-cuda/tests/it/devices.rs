//! Devices, streams, events.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{CudaDevice, CudaError, DriverAllocator, PinnedAllocator, caching_allocator};
use orlop_cudasim_control::SimulationConfig;

#[test]
fn a_device_is_opened_once() {
    let machine = Machine::new(&SimulationConfig::new());
    let again = CudaDevice::new(0).expect("a device");
    assert!(std::sync::Arc::ptr_eq(again.context(), machine.device.context()));
    assert_eq!(machine.device.memory().expect("figures").total, 1 << 30);
    assert!(matches!(CudaDevice::new(9), Err(CudaError::NoSuchDevice { ordinal: 9, .. })));
}

#[test]
fn adopting_a_context_that_is_in_use_waits_for_nothing() {
    let machine = Machine::new(&SimulationConfig::new());
    let before = machine.driver.calls("cuCtxSynchronize");
    let again = CudaDevice::adopt(std::sync::Arc::clone(machine.device.context())).unwrap();
    drop(again);
    assert_eq!(machine.driver.calls("cuCtxSynchronize"), before);
}

#[test]
fn a_device_may_be_opened_any_number_of_times() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 22, 1 << 22]));
    // As many as there are numbers, so that the next would get the number of the first device.
    for _ in 0..u16::MAX {
        drop(CudaDevice::new(1).unwrap());
    }
    let other = CudaDevice::new(1).unwrap();
    let (one, two) = (other.create_stream().unwrap(), other.create_stream().unwrap());
    let block = DriverAllocator::direct(&other).into_ref().allocate(&Request::new(1 << 20)).unwrap();
    machine.write(&one, &block);
    two.wait_for(one.id()).unwrap();
    machine.write(&two, &block);
    assert_eq!(machine.races(), [], "an event was looked up on the other device");
    two.synchronize().unwrap();
}

#[test]
fn a_block_used_by_two_streams_is_reused_after_both() {
    let machine = Machine::new(&SimulationConfig::new());
    let (one, two) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    for _ in 0..100 {
        let block = allocator.allocate(&Request::new(1 << 20).stream(one.id())).unwrap();
        machine.write(&one, &block);
        two.wait_for(one.id()).unwrap();
        block.record_stream(two.id()).unwrap();
        machine.write(&two, &block);
        drop(block);
    }
    assert_eq!(machine.races(), []);
    allocator.verify().unwrap();
}

#[test]
fn a_stream_that_is_gone_is_waited_for() {
    let machine = Machine::new(&SimulationConfig::new());
    let one = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = Request::new(1 << 20).stream(one.id());
    for _ in 0..20 {
        let two = machine.device.create_stream().unwrap();
        let block = allocator.allocate(&request).unwrap();
        two.wait_for(one.id()).unwrap();
        block.record_stream(two.id()).unwrap();
        machine.write(&two, &block);
        drop(two);
        // The id still stands for the stream's work.
        drop(block);
        let next = allocator.allocate(&request).unwrap();
        machine.write(&one, &next);
    }
    assert_eq!(machine.races(), []);
    allocator.verify().unwrap();
    drop(allocator);
    drop(one);
    assert!(machine.counts().streams <= 1, "streams are destroyed: {:?}", machine.counts());
}

#[test]
fn everything_is_returned_in_any_order() {
    let machine = Machine::new(&SimulationConfig::new());
    let driver = *machine;
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let pinned = PinnedAllocator::new(&machine.device).into_ref();
    let blocks = [
        allocator.allocate(&Request::new(5000).stream(stream.id())).unwrap(),
        pinned.allocate(&Request::new(5000)).unwrap(),
    ];
    machine.write(&stream, &blocks[0]);
    drop((allocator, pinned));
    let Machine { device, driver: turn } = machine;
    drop(device);
    drop(stream);
    assert!(driver.used_memory(0) > 0, "the block keeps its memory");
    // A thread that outlives everything but its block.
    std::thread::spawn(move || drop(blocks)).join().unwrap();
    assert_eq!((driver.used_memory(0), driver.live_allocations()), (0, vec![]));
    assert_eq!((driver.counts().events, driver.counts().streams), (0, 0));
    drop(turn);
}

#[test]
fn the_current_context_is_restored() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let (first, second) = (&machine.device, CudaDevice::new(1).unwrap());
    first.context().bind_to_thread().unwrap();
    let allocator = caching_allocator(&second).unwrap().into_ref();
    let stream = second.create_stream().unwrap();
    let block = allocator.allocate(&Request::new(1 << 20).stream(stream.id()).zeroed()).unwrap();
    machine.write(&stream, &block);
    drop(block);
    allocator.trim(0);
    let mut current = std::ptr::null_mut();
    // SAFETY: it writes one handle.
    unsafe { cudarc::driver::sys::cuCtxGetCurrent(&raw mut current) }.result().unwrap();
    assert_eq!(current, first.context().cu_ctx());
    assert_eq!(second.create_stream().unwrap().wait_for(stream.id()), Ok(()));
    // A stream of the other device is waited for too.
    let other = first.create_stream().unwrap();
    assert_eq!(other.wait_for(stream.id()), Ok(()));
}
