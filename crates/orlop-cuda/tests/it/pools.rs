//! The driver's pools: memory that is kept, given back, and shared with cudarc.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{DriverAllocator, MemoryPool};
use orlop_cudasim_control::SimulationConfig;
use std::sync::Arc;

const MIB: usize = 1 << 20;

#[test]
fn freed_memory_stays_in_the_pool_when_the_host_waits() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let allocator = DriverAllocator::stream_ordered(&machine.device).unwrap().into_ref();
    for _ in 0..3 {
        drop(allocator.allocate(&Request::new(256 * MIB).stream(stream.id())).unwrap());
        stream.synchronize().unwrap();
        assert_eq!(machine.used_memory(0), 256 << 20);
    }
    assert_eq!((allocator.usage().reserved, allocator.usage().regions), (256 << 20, 1));
    assert_eq!(allocator.trim(100 << 20), 156 << 20);
    assert_eq!((allocator.trim(0), allocator.usage().reserved), (100 << 20, 0));
    assert_eq!((machine.used_memory(0), allocator.usage().peak_reserved), (0, 256 << 20));
    allocator.reset_peak();
    assert_eq!(allocator.usage().peak_reserved, 0);
}

#[test]
fn the_threshold_of_a_pool_is_followed() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let pool = Arc::new(MemoryPool::new(&machine.device).unwrap());
    assert_eq!(pool.release_threshold().unwrap(), u64::MAX);
    pool.set_release_threshold(64 << 20).unwrap();
    let allocator = DriverAllocator::in_pool(Arc::clone(&pool)).into_ref();
    let block = allocator.allocate(&Request::new(100 * MIB).stream(stream.id())).unwrap();
    let usage = pool.usage().unwrap();
    assert_eq!((usage.reserved, usage.used), (100 << 20, 100 << 20));
    drop(block);
    stream.synchronize().unwrap();
    let usage = pool.usage().unwrap();
    assert_eq!((usage.reserved, usage.used, usage.peak_used), (64 << 20, 0, 100 << 20));
}

/// What candle and mistral.rs allocate through cudarc is counted with the rest.
#[test]
fn cudarc_allocates_from_the_current_pool() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let allocator = DriverAllocator::stream_ordered(&machine.device).unwrap().into_ref();
    let pool = Arc::clone(allocator.pool().unwrap());
    let current = pool.make_current().unwrap();
    let slice = stream.cudarc().alloc_zeros::<u8>(10 * MIB).unwrap();
    assert_eq!((allocator.usage().reserved, pool.usage().unwrap().used), (10 << 20, 10 << 20));
    drop(current);
    let _other = stream.cudarc().alloc_zeros::<u8>(MIB).unwrap();
    assert_eq!(allocator.usage().reserved, 10 << 20, "from the default pool");
    // A slice outlives the pool that it came from.
    drop((allocator, pool));
    stream.synchronize().unwrap();
    assert_eq!(machine.used_memory(0), 11 << 20);
    drop(slice);
    stream.synchronize().unwrap();
    assert_eq!(machine.used_memory(0), 1 << 20);
}

#[test]
fn a_later_current_pool_stays() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let [first, second] = [0, 1].map(|_| Arc::new(MemoryPool::new(&machine.device).unwrap()));
    let of_first = first.make_current().unwrap();
    let of_second = second.make_current().unwrap();
    drop(of_first);
    let _slice = stream.cudarc().alloc_zeros::<u8>(MIB).unwrap();
    assert_eq!((first.usage().unwrap().used, second.usage().unwrap().used), (0, MIB as u64));
    drop(of_second);
}

/// The pool that was made current last, and is not dropped, is the current one.
#[test]
fn pools_are_made_current_in_turn() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let [outer, inner] = [0, 1].map(|_| Arc::new(MemoryPool::new(&machine.device).unwrap()));
    let mut slices = Vec::new();
    let mut used = || {
        slices.push(stream.cudarc().alloc_zeros::<u8>(MIB).unwrap());
        [&outer, &inner].map(|pool| pool.usage().unwrap().used >> 20)
    };
    let (first, second) = (outer.make_current().unwrap(), outer.make_current().unwrap());
    drop(first);
    assert_eq!(used(), [1, 0], "made current twice, and ended once");
    let nested = inner.make_current().unwrap();
    assert_eq!(used(), [1, 1]);
    drop(nested);
    assert_eq!(used(), [2, 1], "the outer one again");
    let nested = inner.make_current().unwrap();
    drop(second);
    assert_eq!(used(), [2, 2], "the inner one still");
    drop(nested);
    assert_eq!(used(), [2, 2], "the default one");
}

#[test]
fn a_request_that_fails_is_tried_again_after_the_pending_frees() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).bytes_per_microsecond(10));
    let [one, two] = [0, 1].map(|_| machine.device.create_stream().unwrap());
    let allocator = DriverAllocator::stream_ordered(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(700 * MIB).stream(one.id())).unwrap();
    machine.write(&one, &block);
    drop(block);
    machine.fail("cuMemAllocFromPoolAsync", 1, 2).unwrap();
    let block = allocator.allocate(&Request::new(700 * MIB).stream(two.id())).unwrap();
    machine.write(&two, &block);
    let refused = allocator.allocate(&Request::new(700 * MIB).stream(one.id())).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    assert_eq!(machine.races(), []);
}
