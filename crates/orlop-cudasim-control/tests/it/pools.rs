//! Memory pools.

use crate::support::{OK, handle, start, start_with};
use crate::virtual_memory::create;
use cudarc::driver::sys;
use orlop_cudasim_control::{KernelRun, LiveKind, SimulationConfig};
use std::ptr;
use std::time::Duration;
use sys::CUmemPool_attribute_enum as Attribute;
use sys::CUresult::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY};

fn figure(pool: sys::CUmemoryPool, attribute: Attribute) -> u64 {
    let mut value = 0u64;
    assert_eq!(cu!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast())), OK);
    value
}

fn default_pool() -> sys::CUmemoryPool {
    let mut pool = ptr::null_mut();
    assert_eq!(cu!(cuDeviceGetDefaultMemPool(&raw mut pool, 0)), OK);
    pool
}

pub(crate) fn new_pool() -> sys::CUmemoryPool {
    // SAFETY: zero is a valid value of every field.
    let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
    let mut pool = ptr::null_mut();
    assert_eq!(cu!(cuMemPoolCreate(&raw mut pool, &raw const properties)), OK);
    pool
}

#[test]
fn memory_above_the_threshold_goes_back_at_a_wait() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let pool = default_pool();
    for (mut threshold, reserved) in [(0u64, 0), (u64::MAX, 1 << 20)] {
        let name = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        assert_eq!(cu!(cuMemPoolSetAttribute(pool, name, (&raw mut threshold).cast())), OK);
        let mut address = 0;
        assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 1 << 20, stream.cu_stream())), OK);
        assert_eq!(driver.live_allocations()[0].kind, LiveKind::Pooled);
        assert_eq!(figure(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1 << 20);
        assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
        stream.synchronize().expect("a wait");
        assert_eq!(figure(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        assert_eq!(figure(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
        assert_eq!(driver.used_memory(0), reserved);
    }
    assert_eq!(cu!(cuMemPoolTrimTo(pool, 0)), OK);
    assert_eq!(driver.used_memory(0), 0);
    assert_eq!(figure(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1 << 20);
}

#[test]
fn an_allocation_waits_for_memory_on_its_way_back() {
    let (driver, context) = start_with(&SimulationConfig::new().memory(1 << 20).waiting_pools(true));
    let stream = context.new_stream().expect("a stream");
    let mut address = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 1 << 20, stream.cu_stream())), OK);
    let mut other = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut other, 512, stream.cu_stream())), CUDA_ERROR_OUT_OF_MEMORY);
    let run = KernelRun::new("long").takes(Duration::from_millis(2));
    driver.run_kernel(handle(&stream), run).expect("ok");
    assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
    let before = driver.now();
    assert_eq!(cu!(cuMemAllocAsync(&raw mut other, 1 << 20, stream.cu_stream())), OK);
    assert!(driver.now() - before > Duration::from_millis(1));
    assert_eq!(driver.races(), []);
}

#[test]
fn pools_of_the_program_and_devices_without_pools() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let (pool, mut address) = (new_pool(), 0);
    let from = cu!(cuMemAllocFromPoolAsync(&raw mut address, 4096, pool, stream.cu_stream()));
    assert_eq!(from, OK);
    // Destroyed now, gone with its last memory.
    assert_eq!(cu!(cuMemPoolDestroy(pool)), OK);
    let mut again = 0;
    let from = cu!(cuMemAllocFromPoolAsync(&raw mut again, 4096, pool, stream.cu_stream()));
    assert_eq!(from, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
    stream.synchronize().expect("a wait");
    assert_eq!((driver.used_memory(0), driver.live_allocations()), (0, Vec::new()));
    assert_ne!(cu!(cuMemPoolDestroy(default_pool())), OK);

    driver.reset(&SimulationConfig::new().pools(false)).expect("a reset");
    let context = cudarc::driver::CudaContext::new(0).expect("a device");
    assert!(!context.has_async_alloc());
    let stream = context.new_stream().expect("a stream");
    let refused = cu!(cuMemAllocAsync(&raw mut address, 64, stream.cu_stream()));
    assert_eq!(refused, CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn what_a_pool_keeps_serves_other_allocations() {
    let (driver, context) = start_with(&SimulationConfig::new().memory(4 << 20));
    let stream = context.new_stream().expect("a stream");
    let (name, mut threshold) = (Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
    assert_eq!(cu!(cuMemPoolSetAttribute(default_pool(), name, (&raw mut threshold).cast())), OK);
    let keep = || {
        let mut address = 0;
        assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 4 << 20, stream.cu_stream())), OK);
        assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
        stream.synchronize().expect("a wait");
        assert_eq!(driver.used_memory(0), 4 << 20);
    };
    keep();
    let mut address = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, 2 << 20)), OK);
    assert_eq!(driver.used_memory(0), 2 << 20);
    assert_eq!(cu!(cuMemFree_v2(address)), OK);
    keep();
    assert!(create(1).is_ok());
    assert_eq!(driver.used_memory(0), 2 << 20);
}

/// As driver 580 does: it waits for pending frees of the same pool.
#[test]
fn an_allocation_does_not_wait_for_memory_of_another_pool() {
    let (driver, context) = start_with(&SimulationConfig::new().memory(1 << 20).waiting_pools(true));
    let stream = context.new_stream().expect("a stream");
    let (other, mut address) = (new_pool(), 0);
    assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 1 << 20, stream.cu_stream())), OK);
    let run = KernelRun::new("long").takes(Duration::from_millis(2));
    driver.run_kernel(handle(&stream), run).expect("ok");
    assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
    let allocated = cu!(cuMemAllocFromPoolAsync(&raw mut address, 512, other, stream.cu_stream()));
    assert_eq!(allocated, CUDA_ERROR_OUT_OF_MEMORY);
    assert!(driver.now() < Duration::from_millis(1));
}
