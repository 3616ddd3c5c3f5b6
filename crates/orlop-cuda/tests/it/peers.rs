//! Copies between two devices, with and without access to each other's memory.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Block, DeviceOps, DevicePtr, Error, Request, engine_support::StridedLoops};
use orlop_context::Context;
use orlop_core::{Device, Layout, Shape, Strides};
use orlop_cuda::{
    CudaDevice, CudaError, CudaMemory, CudaOps, DeviceStream, DriverAllocator, KernelPointer, MemoryPool,
    caching_allocator_with, install,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, Policy};
use orlop_tensor::Tensor;
use std::sync::Arc;

const BYTES: usize = 1 << 20;

struct Place {
    ops: CudaOps,
    stream: DeviceStream,
    device: CudaDevice,
}

impl Place {
    fn new(device: CudaDevice) -> Self {
        Self { ops: CudaOps::new(&device), stream: device.create_stream().unwrap(), device }
    }

    fn block(&self, policy: Policy) -> Block {
        let allocator = caching_allocator_with(&self.device, policy).unwrap().into_ref();
        allocator.allocate(&Request::new(BYTES).stream(self.stream.id()).zeroed()).unwrap()
    }
}

/// Returns the machine first: it is dropped last.
fn two_places(has_access: bool) -> (Machine, [Place; 2]) {
    let config = SimulationConfig::new().devices([1 << 28, 1 << 28]).peer_access(has_access);
    let machine = Machine::new(&config.bytes_per_microsecond(100));
    let places = [machine.device.clone(), CudaDevice::new(1).unwrap()].map(Place::new);
    (machine, places)
}

#[test]
fn blocks_are_copied_between_devices_in_the_order_of_streams() {
    for has_access in [false, true] {
        for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
            let (machine, [near, far]) = two_places(has_access);
            let pattern = [1, 2, 3, 4, 5, 6, 7, 8];
            let from = near.block(policy.clone());
            // SAFETY: all of the block, which its allocator keeps for the stream.
            unsafe { near.ops.fill(from.device_ptr(), &pattern, BYTES / 8, near.stream.id()) }.unwrap();
            let before = machine.counts().waits;
            // By the operations of the destination, and back by those of the source.
            let mut there = far.block(policy.clone());
            there.copy_by(&far.ops, &from, far.stream.id()).unwrap();
            let mut back = near.block(policy.clone());
            back.copy_by(&far.ops, &there, far.stream.id()).unwrap();
            assert_eq!(machine.counts().waits, before, "the host waits for nothing");
            // Both are written by their own streams, after the copies.
            let (mut from, mut there) = (from, there);
            from.zero_by(&near.ops, near.stream.id()).unwrap();
            there.zero_by(&far.ops, far.stream.id()).unwrap();
            drop((from, there));
            machine.device.context().synchronize().unwrap();
            far.device.context().synchronize().unwrap();
            let copied = machine.read(back.as_ptr().as_ptr().addr(), BYTES).unwrap();
            assert!(copied == pattern.repeat(BYTES / 8), "{has_access} {}", policy.name);
            assert_eq!(machine.races(), []);
        }
    }
}

#[test]
fn strided_copies_between_devices_are_made_of_runs() {
    let (machine, [near, far]) = two_places(false);
    let policy = Policy::orlop_without_pages();
    let (from, to) = (near.block(policy.clone()), far.block(policy));
    near.stream.synchronize().unwrap();
    far.stream.synchronize().unwrap();
    machine.driver.write(from.as_ptr().as_ptr().addr(), &[1, 1, 2, 2, 3, 3, 4, 4]).unwrap();
    // Every other element of two bytes.
    let every = |step| Layout::new(Shape::new(&[2]).unwrap(), Strides::new(&[step]).unwrap(), 0).unwrap();
    let (to_place, from_place) = (to.device_ptr(), from.device_ptr());
    StridedLoops::with((&every(1), 2), Some((&every(2), 2)), |loops| {
        // SAFETY: inside the blocks, which are kept until the stream was waited for.
        unsafe { far.ops.copy_strided(to_place, from_place, 2, loops, far.stream.id()) }.unwrap();
    })
    .unwrap();
    far.stream.synchronize().unwrap();
    assert_eq!(machine.read(to.as_ptr().as_ptr().addr(), 5).unwrap(), [1, 1, 3, 3, 0]);
}

#[test]
fn a_tensor_moves_to_another_device_without_the_host() {
    let (machine, [near, far]) = two_places(false);
    let context = Context::new();
    install(&context, &near.device).unwrap();
    install(&context, &far.device).unwrap();
    let values: Vec<f32> = (0_u16..5000).map(f32::from).collect();
    context.scope(|| {
        let first = Tensor::from_slice(&values).unwrap().to_device(near.device.device()).unwrap();
        let copies = machine.calls("cuMemcpyDtoHAsync_v2");
        let second = first.to_device(far.device.device()).unwrap();
        assert_eq!(machine.calls("cuMemcpyDtoHAsync_v2"), copies);
        assert_eq!(machine.calls("cuMemcpyPeerAsync"), 1);
        drop(first);
        assert_eq!(second.to_device(Device::CPU).unwrap().to_vec::<f32>().unwrap(), values);
    });
    assert_eq!(machine.races(), []);
}

#[test]
fn a_device_that_is_not_open_has_no_path() {
    let (machine, [near, far]) = two_places(true);
    let mut to = near.block(Policy::orlop());
    let from = far.block(Policy::orlop());
    let third = CudaOps::new(&near.device);
    // Another device's stream does not run these operations.
    let refused = to.copy_by(&third, &from, far.stream.id()).unwrap_err();
    assert!(refused.to_string().contains("not a stream"), "{refused}");
    let absent = DevicePtr::new(from.as_ptr(), Device::cuda(7));
    // SAFETY: refused before anything is accessed.
    let refused = unsafe { near.ops.copy(to.device_ptr(), absent, 8, near.stream.id()) };
    assert!(matches!(refused, Err(Error::NoCopyPath { .. })));
    assert_eq!(machine.races(), []);
}

/// A kernel of one device writes the memory of another one, which is then reused.
#[test]
fn kernels_access_memory_of_a_peer() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let (machine, [near, far]) = two_places(true);
        let allocator = caching_allocator_with(&near.device, policy.clone()).unwrap().into_ref();
        let request = Request::new(BYTES).stream(near.stream.id());
        let before = allocator.allocate(&request.zeroed()).unwrap();
        let refused = KernelPointer::<u8>::of(&before, &far.stream).unwrap_err();
        assert!(matches!(refused.backend_error(), Some(CudaError::NotOnDevice { .. })), "{refused}");
        far.device.enable_peer_access(&near.device).unwrap();
        far.device.enable_peer_access(&near.device).unwrap();
        let after = allocator.allocate(&request.zeroed()).unwrap();
        far.device.context().bind_to_thread().unwrap();
        for block in [&before, &after] {
            KernelPointer::<u8>::of(block, &far.stream).unwrap();
            machine.write(&far.stream, block);
        }
        // Only in this direction.
        let refused = KernelPointer::<u8>::of(&far.block(policy.clone()), &near.stream).unwrap_err();
        assert!(matches!(refused.backend_error(), Some(CudaError::NotOnDevice { .. })), "{refused}");
        drop((before, after));
        let next = [0, 1].map(|_| allocator.allocate(&request).unwrap());
        near.device.context().bind_to_thread().unwrap();
        next.iter().for_each(|block| machine.write(&near.stream, block));
        near.stream.synchronize().unwrap();
        far.stream.synchronize().unwrap();
        assert_eq!(machine.races(), [], "{}", policy.name);
    }
}

#[test]
fn access_that_fails_or_whose_device_ends_is_none() {
    let (machine, [near, far]) = two_places(true);
    let block = near.block(Policy::orlop());
    machine.driver.fail("cuMemSetAccess", 1, 1).unwrap();
    far.device.enable_peer_access(&near.device).unwrap_err();
    KernelPointer::<u8>::of(&block, &far.stream).unwrap_err();
    far.device.enable_peer_access(&near.device).unwrap();
    KernelPointer::<u8>::of(&block, &far.stream).unwrap();
    // Another context of the same device has no access.
    drop(far);
    let again = Place::new(CudaDevice::new(1).unwrap());
    KernelPointer::<u8>::of(&block, &again.stream).unwrap_err();
    again.device.enable_peer_access(&near.device).unwrap();
    KernelPointer::<u8>::of(&block, &again.stream).unwrap();
    drop(block);
    assert_eq!(machine.races(), []);
}

#[test]
fn kernels_access_a_pool_of_a_peer() {
    let (machine, [near, far]) = two_places(true);
    let pool = Arc::new(MemoryPool::new(&near.device).unwrap());
    far.device.enable_peer_access(&near.device).unwrap();
    pool.allow(&far.device).unwrap();
    let allocator = DriverAllocator::in_pool(pool).into_ref();
    let block = allocator.allocate(&Request::new(BYTES).stream(near.stream.id())).unwrap();
    KernelPointer::<u8>::of(&block, &far.stream).unwrap();
    far.device.context().bind_to_thread().unwrap();
    machine.write(&far.stream, &block);
    far.stream.synchronize().unwrap();
    drop(block);
    assert_eq!(machine.races(), []);
}

#[test]
fn devices_without_a_path_are_an_error() {
    let (machine, [near, far]) = two_places(false);
    let (device, peer) = (near.device.device(), far.device.device());
    assert_eq!(near.device.enable_peer_access(&far.device), Err(CudaError::NoPeerAccess { device, peer }));
    assert!(MemoryPool::new(&near.device).unwrap().allow(&far.device).is_err());
    assert_eq!(machine.races(), []);
}

/// Pages for network cards have a flag; a device whose pages cannot have it is an error.
#[test]
fn memory_for_other_hardware_is_flagged() {
    let flagged = |config: SimulationConfig| {
        let machine = Machine::new(&config);
        let allocator =
            DeviceAllocator::new(CudaMemory::for_rdma(&machine.device)?, Policy::orlop()).into_ref();
        let stream = machine.device.create_stream().unwrap();
        let block = allocator.allocate(&Request::new(3 * BYTES).stream(stream.id())).unwrap();
        machine.write(&stream, &block);
        Ok((machine.counts().rdma_pages, machine.calls("cuMemCreate"), machine.calls("cuMemAlloc_v2")))
    };
    assert_eq!(flagged(SimulationConfig::new()), Ok((2, 2, 0)));
    let refused = flagged(SimulationConfig::new().rdma(false));
    assert!(matches!(refused, Err(CudaError::Unsupported { .. })), "{refused:?}");
    // Regions can always be registered.
    assert_eq!(flagged(SimulationConfig::new().virtual_memory(false)), Ok((0, 0, 1)));
}
