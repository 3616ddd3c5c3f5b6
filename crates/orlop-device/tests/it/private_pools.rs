//! Private pools of a device: memory reserved for a captured graph, which others get only if that is allowed.

use orlop_alloc::{AllocatorRef, Error, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, DeviceError, NullDevice, Policy, PoolId, StreamFilter, TorchConf};

const POOL: PoolId = (7, 0);
const MIB: usize = 1 << 20;

/// A device of 32 MiB, with 20 MiB cached by a private pool.
fn with_a_private_pool() -> AllocatorRef<DeviceAllocator<NullDevice>> {
    let device = NullDevice::new(Device::cuda(0), 32 << 20);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref();
    allocator.begin_allocate_to_pool(POOL, StreamFilter::All).expect("there is room");
    drop(allocator.allocate(&Request::new(20 * MIB)).expect("there is room"));
    allocator.end_allocate_to_pool(POOL).expect("there is room");
    allocator
}

#[test]
fn a_pool_serves_others_before_they_fail_if_it_is_allowed_to() {
    let allocator = with_a_private_pool();
    let request = Request::new(20 * MIB);
    let fails = || allocator.allocate(&request).is_err_and(|error| error.is_out_of_memory());
    assert!(fails(), "it keeps its memory for itself");
    allocator.use_pool_on_oom(POOL, true).unwrap();
    let lent = allocator.allocate(&request).unwrap();
    assert!(fails(), "it has no more");
    // A request that fits elsewhere does not use the pool.
    let small = allocator.allocate(&Request::new(10 * MIB)).unwrap();
    let pool = lent.as_ptr().as_ptr().addr()..lent.as_ptr().as_ptr().addr() + lent.capacity();
    assert!(!pool.contains(&small.as_ptr().as_ptr().addr()));
    drop((lent, small));
    allocator.use_pool_on_oom(POOL, false).unwrap();
    assert!(fails(), "it is for itself again");
    orlop_alloc::Allocator::verify(&allocator).unwrap();
}

#[test]
fn an_unused_pool_gives_its_memory_back() {
    let allocator = with_a_private_pool();
    allocator.release_pool(POOL).unwrap();
    assert!(allocator.allocate(&Request::new(30 * MIB)).is_ok());
}

#[test]
fn there_must_be_a_pool_of_that_name() {
    let allocator = with_a_private_pool();
    let unknown = allocator.use_pool_on_oom((8, 0), true);
    assert!(matches!(unknown, Err(DeviceError::NoPool { id: (8, 0) })));
    assert!(Error::from(allocator.end_allocate_to_pool(POOL).unwrap_err()).to_string().contains('7'));
}
