//! Streams that are not known, and subscribers that use what emits their events.

use crate::machine::Machine;
use crate::subscriber::acting_at_the_first_event;
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_core::StreamId;
use orlop_cuda::{
    BlockSlice, CudaDevice, CudaError, CudaOps, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceError, Policy};

const BYTES: usize = 1 << 20;

#[test]
fn requests_for_unknown_streams_are_refused() {
    let machine = Machine::new(&SimulationConfig::new());
    let device = &machine.device;
    let torch = Policy::torch(&"".parse().unwrap());
    let allocators: [AllocatorRef; 5] = [
        caching_allocator(device).unwrap().into_ref().erase(),
        caching_allocator_with(device, torch).unwrap().into_ref().erase(),
        DriverAllocator::direct(device).into_ref().erase(),
        DriverAllocator::stream_ordered(device).unwrap().into_ref().erase(),
        PinnedAllocator::new(device).into_ref().erase(),
    ];
    for allocator in allocators {
        let kept = allocator.allocate(&Request::new(64 * BYTES)).unwrap();
        for _ in 0..2 {
            let unknown = allocator.allocate(&Request::new(BYTES).stream(StreamId::unique())).unwrap_err();
            assert!(unknown.to_string().contains("not known"), "{unknown}");
        }
        drop(kept);
        allocator.trim(0);
        assert_eq!(allocator.usage().reserved, 0, "nothing waits for such a stream");
    }
}

/// A device cannot access all memory of another one: a fill would be an illegal access, which loses the
/// device.
#[test]
fn streams_of_other_devices_are_refused() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]).peer_access(true));
    let (device, far) = (&machine.device, CudaDevice::new(1).unwrap());
    let (own, other) = (device.create_stream().unwrap(), far.create_stream().unwrap());
    let allocators: [AllocatorRef; 3] = [
        caching_allocator(device).unwrap().into_ref().erase(),
        DriverAllocator::direct(device).into_ref().erase(),
        DriverAllocator::stream_ordered(device).unwrap().into_ref().erase(),
    ];
    let ops = CudaOps::new(device);
    for allocator in allocators {
        for stream in [other.id(), far.default_stream()] {
            let refused = allocator.allocate(&Request::new(BYTES).stream(stream).zeroed()).unwrap_err();
            assert!(refused.to_string().contains("stream"), "{refused}");
            let mut block = allocator.allocate(&Request::new(BYTES).stream(own.id())).unwrap();
            let refused = block.zero_by(&ops, stream).unwrap_err();
            assert!(matches!(refused.backend_error(), Some(CudaError::OtherDevice { .. })), "{refused}");
        }
        allocator.trim(0);
        assert_eq!(allocator.usage().reserved, 0);
    }
    for device in [device, &far] {
        device.context().synchronize().unwrap();
    }
}

/// A stream that ended is not unknown, and neither is one that is known after others were refused.
#[test]
fn a_refused_stream_does_not_change_others() {
    let machine = Machine::new(&SimulationConfig::new());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let unknown = StreamId::unique();
    let refused = allocator.allocate(&Request::new(BYTES).stream(unknown)).unwrap_err();
    assert_eq!(
        refused.backend_error::<DeviceError>(),
        Some(&DeviceError::UnknownStream { stream: unknown }),
        "the first request of all"
    );
    let stream = machine.device.create_stream().unwrap();
    let request = Request::new(BYTES).stream(stream.id());
    let block = allocator.allocate(&request).unwrap();
    let first = block.as_ptr();
    drop(block);
    allocator.allocate(&Request::new(BYTES).stream(unknown)).unwrap_err();
    assert_eq!(allocator.allocate(&request).unwrap().as_ptr(), first);
    drop(stream);
    allocator.verify().unwrap();
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0);
}

/// A failed call is reported with the engine locked, and the subscriber drops a block of the same allocator.
#[test]
fn a_block_is_dropped_by_what_its_allocator_reports() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let torch = Policy::torch(&"".parse().unwrap());
    let allocator = caching_allocator_with(&machine.device, torch).unwrap().into_ref();
    let request = Request::new(BYTES).stream(one.id());
    let [block, other] = [(); 2].map(|()| allocator.allocate(&request).unwrap());
    other.record_stream(two.id()).unwrap();
    block.record_stream(two.id()).unwrap();
    machine.fail("cuEventRecord", 1, 1).unwrap();
    acting_at_the_first_event(move || drop(other), || drop(block));
    assert_eq!(allocator.device_stats().allocation.all.current, 0, "it is freed when the lock is taken next");
    assert_eq!((allocator.stats().refused_frees, allocator.stats().live()), (0, 0));
    allocator.verify().unwrap();
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0);
    drop(allocator);
    assert_eq!(machine.used_memory(0), 0);
}

/// The calls that order a slice on another stream fail: it is waited for on the host, or has no address.
#[test]
fn a_slice_that_cannot_be_ordered_is_not_used() {
    let machine = Machine::new(&SimulationConfig::new().bytes_per_microsecond(100));
    let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let mut block = allocator.allocate(&Request::new(BYTES).stream(one.id())).unwrap();
    let mut out = two.cudarc().alloc_zeros::<u8>(BYTES).unwrap();
    machine.device.context().synchronize().unwrap();
    for (call, code) in [("cuEventCreate", 2), ("cuEventRecord", 1), ("cuStreamWaitEvent", 1)] {
        for can_wait in [true, false] {
            let mut slice = BlockSlice::<u8>::of(&mut block, &one).unwrap();
            one.cudarc().memset_zeros(&mut slice).unwrap();
            machine.fail(call, 1, code).unwrap();
            if !can_wait {
                machine.fail("cuStreamSynchronize", 1, 1).unwrap();
            }
            let copied = two.cudarc().memcpy_dtod(&slice, &mut out);
            machine.clear_faults();
            assert_eq!(copied.is_ok(), can_wait, "{call}: {copied:?}");
            assert_eq!(machine.races(), [], "{call}");
            let _reported = machine.device.context().check_err();
            machine.device.context().synchronize().unwrap();
        }
    }
}
