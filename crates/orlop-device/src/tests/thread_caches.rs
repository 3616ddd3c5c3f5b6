//! The thread caches of an allocator: what they hold, who gets it back, and what the statistics say.

use super::{MIB, torch};
use crate::{DeviceAllocator, DeviceBacking, DeviceStats, NullDevice, Policy, PoolId, StreamFilter};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::{Device, MemoryKind, StreamId};
use std::sync::mpsc;
use std::thread;

type Caching = AllocatorRef<DeviceAllocator<NullDevice>>;

fn allocator(policy: Policy, mib: u64) -> Caching {
    DeviceAllocator::new(NullDevice::new(Device::cuda(0), mib << 20), policy).into_ref()
}

pub(super) fn on(bytes: usize, stream: u64) -> Request {
    Request::new(bytes).stream(StreamId::from_raw(stream))
}

pub(super) fn allocate<B: DeviceBacking>(
    allocator: &AllocatorRef<DeviceAllocator<B>>,
    request: &Request,
) -> Block {
    allocator.allocate(request).expect("memory")
}

/// Frees a block and returns its address.
pub(super) fn free(block: Block) -> usize {
    block.as_ptr().as_ptr().addr()
}

/// Creates this thread's cache: the first block that it frees is not cached.
fn warm_up(allocator: &Caching) {
    drop(allocate(allocator, &on(512, 1)));
    allocator.empty_cache().expect("a device that works");
    allocator.reset_peak();
}

fn blocks_and_bytes(stats: &DeviceStats) -> [u64; 4] {
    let (count, bytes) = (stats.allocation.all, stats.allocated_bytes.all);
    [count.current, count.peak, bytes.current, bytes.peak]
}

#[test]
fn a_request_gets_the_block_that_its_thread_freed_last_for_the_same() {
    let allocator = allocator(Policy::orlop(), 64);
    warm_up(&allocator);
    let [first, second] = [allocate(&allocator, &on(1000, 1)), allocate(&allocator, &on(1000, 1))];
    let other = allocate(&allocator, &on(1000, 2));
    let [first, second] = [free(first), free(second)];
    let other = free(other);
    assert_eq!(free(allocate(&allocator, &on(1000, 2))), other, "of its stream");
    let again = [allocate(&allocator, &on(1000, 1)), allocate(&allocator, &on(1000, 1))];
    assert_eq!(again.map(free), [second, first]);
    let lasting = allocate(&allocator, &on(1000, 1).kind(MemoryKind::Persistent));
    assert!(![first, second, other].contains(&free(lasting)), "of its lifetime");
    allocator.verify().unwrap();
}

/// Every figure is that of an allocator without caches, for one thread.
#[test]
fn statistics_are_those_without_caches() {
    let mut without = Policy::orlop();
    without.extensions.thread_caches = false;
    let [cached, direct] = [Policy::orlop(), without].map(|policy| allocator(policy, 1 << 10));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) % below
    };
    let mut blocks: Vec<[Block; 2]> = Vec::new();
    let figures = |allocator: &Caching| {
        let stats = allocator.device_stats();
        [stats.allocation, stats.allocated_bytes, stats.active_bytes, stats.requested_bytes]
    };
    for step in 0..6_000 {
        if blocks.is_empty() || (next(2) == 0 && blocks.len() < 40) {
            let sizes = [100, 512, 4000, 4096, 70_000, 3 * MIB];
            let request = on(sizes[usize::try_from(next(6)).unwrap()], 1 + next(3));
            blocks.push([&cached, &direct].map(|allocator| allocate(allocator, &request)));
        } else {
            let place = usize::try_from(next(blocks.len() as u64)).unwrap();
            drop(blocks.swap_remove(place));
        }
        if step % 97 == 0 {
            assert_eq!(figures(&cached), figures(&direct), "step {step}");
        }
        if step % 1000 == 999 {
            cached.verify().unwrap();
            cached.reset_peak();
            direct.reset_peak();
        }
    }
    drop(blocks);
    assert_eq!(figures(&cached), figures(&direct));
    assert_eq!((cached.trim(0), cached.device_stats().reserved_bytes.all.current), (direct.trim(0), 0));
    cached.verify().unwrap();
}

#[test]
fn a_peak_inside_of_a_cache_is_counted() {
    let allocator = allocator(Policy::orlop(), 64);
    warm_up(&allocator);
    let large = allocate(&allocator, &on(2 * MIB, 1));
    drop(large);
    let small = allocate(&allocator, &on(MIB / 2, 1));
    assert_eq!(blocks_and_bytes(&allocator.device_stats()), [1, 1, MIB as u64 / 2, 2 * MIB as u64]);
    let large = allocate(&allocator, &on(2 * MIB, 1));
    let both = MIB as u64 / 2 + 2 * MIB as u64;
    assert_eq!(blocks_and_bytes(&allocator.device_stats()), [2, 2, both, both]);
    drop((small, large));
    assert_eq!(blocks_and_bytes(&allocator.device_stats()), [0, 2, 0, both]);
}

/// Another thread's cached memory serves a request that would otherwise fail.
#[test]
fn a_request_searches_the_caches_of_all_threads_before_it_fails() {
    let allocator = allocator(Policy::orlop(), 64);
    let (to_main, cached) = mpsc::channel();
    let (to_thread, done) = mpsc::channel::<()>();
    let owner = allocator.clone();
    let thread = thread::spawn(move || {
        warm_up(&owner);
        drop((allocate(&owner, &on(30 * MIB, 1)), allocate(&owner, &on(20 * MIB, 1))));
        to_main.send(()).unwrap();
        done.recv().unwrap();
    });
    cached.recv().unwrap();
    let block = allocate(&allocator, &on(60 * MIB, 2));
    assert_eq!(allocator.device_stats().num_ooms, 0);
    drop(block);
    allocator.verify().unwrap();
    to_thread.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn trimming_takes_the_blocks_of_sleeping_threads() {
    let allocator = allocator(Policy::orlop(), 64);
    let owner = allocator.clone();
    thread::spawn(move || {
        warm_up(&owner);
        (1..40).for_each(|mib| drop(allocate(&owner, &on(mib * MIB / 2, 1))));
    })
    .join()
    .unwrap();
    assert!(allocator.usage().reserved > 0);
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0);
    allocator.verify().unwrap();
}

/// Blocks that another thread frees count there, and none is lost.
#[test]
fn blocks_that_other_threads_free_add_up() {
    let allocator = allocator(Policy::orlop(), 256);
    let (sender, receiver) = mpsc::channel::<Block>();
    let freeing = thread::spawn(move || receiver.into_iter().map(free).count());
    for number in 0..5_000 {
        sender.send(allocate(&allocator, &on(512 * (1 + number % 5), 1))).unwrap();
    }
    drop(sender);
    assert_eq!(freeing.join().unwrap(), 5_000);
    let stats = allocator.device_stats();
    let counts = stats.allocation.all;
    assert_eq!((counts.current, counts.allocated, counts.freed), (0, 5_000, 5_000));
    assert_eq!((stats.allocated_bytes.all.current, stats.active_bytes.all.current), (0, 0));
    assert!(stats.allocated_bytes.all.peak <= 5_000 * 2560);
    allocator.verify().unwrap();
}

/// What is in a cache is common memory: a request that goes to a private pool gets none of it, and a block of
/// a private pool is in no cache.
#[test]
fn memory_of_private_pools_is_not_cached() {
    let allocator = allocator(Policy::orlop(), 64);
    warm_up(&allocator);
    let pool: PoolId = (1, 7);
    let common = free(allocate(&allocator, &on(4096, 1)));
    allocator.begin_allocate_to_pool(pool, StreamFilter::only([StreamId::from_raw(1)])).unwrap();
    let private = allocate(&allocator, &on(4096, 1));
    allocator.end_allocate_to_pool(pool).unwrap();
    let private = free(private);
    let again = free(allocate(&allocator, &on(4096, 1)));
    assert!(private != common && again != private, "{common:#x} {private:#x} {again:#x}");
    allocator.release_pool(pool).unwrap();
    allocator.verify().unwrap();
}

#[test]
fn pytorchs_policy_has_no_caches() {
    let allocator = allocator(torch(""), 64);
    warm_up(&allocator);
    drop(allocate(&allocator, &on(4096, 1)));
    assert_eq!(allocator.with_engine(|engine| engine.stats().allocation.all.current), 0);
    let [first, second] = [allocate(&allocator, &on(512, 1)), allocate(&allocator, &on(512, 1))];
    let lowest = first.as_ptr();
    drop((first, second));
    assert_eq!(allocate(&allocator, &on(512, 1)).as_ptr(), lowest, "the lowest, not the one freed last");
}
