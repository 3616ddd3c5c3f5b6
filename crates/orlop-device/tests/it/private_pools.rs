//! Private pools of a device: memory of a captured graph, which is lent to other requests only if allowed.

use orlop_alloc::{Allocator, AllocatorRef, Error, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, DeviceError, NullDevice, Policy, PoolId, StreamFilter, TorchConf};

const POOL: PoolId = (7, 0);
const MIB: usize = 1 << 20;

/// A device of 32 MiB, with 20 MiB cached by a private pool.
fn with_a_private_pool() -> AllocatorRef<DeviceAllocator<NullDevice>> {
    let device = NullDevice::new(Device::cuda(0), 32 << 20);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref();
    allocator.begin_allocate_to_pool(POOL, StreamFilter::All).expect("the device has memory");
    drop(allocator.allocate(&Request::new(20 * MIB)).expect("the device has memory"));
    allocator.end_allocate_to_pool(POOL).expect("the device has memory");
    allocator
}

#[test]
fn a_pool_that_lends_serves_others_before_they_fail() {
    let allocator = with_a_private_pool();
    let request = Request::new(20 * MIB);
    let fails = || allocator.allocate(&request).is_err_and(|error| error.is_out_of_memory());
    assert!(fails(), "the pool does not lend");
    allocator.use_pool_on_oom(POOL, true).unwrap();
    let lent = allocator.allocate(&request).unwrap();
    assert!(fails(), "all of its memory is lent");
    // A request that fits elsewhere does not use the pool.
    let small = allocator.allocate(&Request::new(10 * MIB)).unwrap();
    let pool = lent.as_ptr().as_ptr().addr()..lent.as_ptr().as_ptr().addr() + lent.capacity();
    assert!(!pool.contains(&small.as_ptr().as_ptr().addr()));
    drop((lent, small));
    allocator.use_pool_on_oom(POOL, false).unwrap();
    assert!(fails(), "the pool does not lend any more");
    Allocator::verify(&allocator).unwrap();
}

#[test]
fn the_memory_of_an_unused_pool_is_released() {
    let allocator = with_a_private_pool();
    allocator.release_pool(POOL).unwrap();
    assert!(allocator.allocate(&Request::new(30 * MIB)).is_ok());
}

#[test]
fn an_unknown_pool_is_an_error() {
    let allocator = with_a_private_pool();
    let unknown = allocator.use_pool_on_oom((8, 0), true);
    assert!(matches!(unknown, Err(DeviceError::NoPool { id: (8, 0) })));
    assert!(Error::from(allocator.end_allocate_to_pool(POOL).unwrap_err()).to_string().contains('7'));
}

/// A pool is dropped before its route ends, and then another one, whose place the first one has when it is
/// created again.
#[test]
fn a_route_leads_to_the_pool_of_its_id() {
    const OTHER: PoolId = (8, 0);
    let device = NullDevice::new(Device::cuda(0), 64 << 20);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref();
    allocator.begin_allocate_to_pool(POOL, StreamFilter::All).unwrap();
    allocator.begin_allocate_to_pool(OTHER, StreamFilter::All).unwrap();
    allocator.end_allocate_to_pool(OTHER).unwrap();
    for pool in [POOL, OTHER] {
        allocator.release_pool(pool).unwrap();
        allocator.empty_cache().unwrap();
    }
    allocator.begin_allocate_to_pool(POOL, StreamFilter::All).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    let block = allocator.allocate(&Request::new(20 * MIB)).unwrap();
    let segments = allocator.with_engine(|engine| engine.segments());
    let pools: Vec<_> = segments.iter().map(|segment| segment.pool).collect();
    assert_eq!(pools, [POOL], "the older route is left");
    drop(block);
}
