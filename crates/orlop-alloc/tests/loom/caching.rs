//! The caching engine over address space: its slots, counters, remote free lists and heap together.
//!
//! Each protocol has a model of its own; these tests cover their combination. They have few operations,
//! because each takes dozens of steps that loom orders in every way.

use loom::thread;
use orlop_alloc::backing::Null;
use orlop_alloc::caching::Caching;
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Request};
use orlop_core::Device;

fn allocator() -> AllocatorRef<Caching<Null>> {
    Caching::new(Null::new(Device::CPU)).into_ref()
}

fn block(allocator: &AllocatorRef<Caching<Null>>, bytes: usize) -> Block {
    allocator.allocate(&Request::new(bytes)).unwrap()
}

fn quiet(allocator: &AllocatorRef<Caching<Null>>, allocations: u64) {
    let all = allocator.stats().totals.all;
    assert_eq!((all.allocations, all.frees, all.live_bytes), (allocations, allocations, 0));
    allocator.verify().unwrap();
    allocator.trim(0);
    assert_eq!(allocator.stats().usage.reserved, 0);
}

/// Another thread frees a block of this thread remotely, while this thread allocates and frees.
#[test]
fn a_block_goes_home_while_its_thread_goes_on() {
    loom::model(|| {
        let allocator = allocator();
        let moved = block(&allocator, 100);
        let other = thread::spawn(move || drop(moved));
        drop(block(&allocator, 100));
        other.join().unwrap();
        drop(block(&allocator, 100));
        quiet(&allocator, 3);
    });
}

/// One thread makes the heap grow while another gives all free memory back.
#[test]
fn growth_races_with_trimming() {
    loom::model(|| {
        let allocator = allocator();
        drop(block(&allocator, 100));
        let other = {
            let allocator = allocator.clone();
            thread::spawn(move || drop(block(&allocator, 1 << 20)))
        };
        allocator.trim(0);
        other.join().unwrap();
        quiet(&allocator, 2);
    });
}

/// A thread ends with full stacks; other threads find what it cached.
#[test]
fn a_thread_ends_with_what_it_has_cached() {
    loom::model(|| {
        let allocator = allocator();
        let other = {
            let allocator = allocator.clone();
            thread::spawn(move || drop((block(&allocator, 100), block(&allocator, 1000))))
        };
        drop(block(&allocator, 100));
        other.join().unwrap();
        quiet(&allocator, 3);
    });
}

/// The last handle is dropped while another thread has a block: the later of the two destroys the engine,
/// once.
#[test]
fn the_allocator_goes_while_a_block_lives_elsewhere() {
    loom::model(|| {
        let allocator = allocator();
        let moved = block(&allocator, 100);
        let other = thread::spawn(move || drop(moved));
        drop(allocator);
        other.join().unwrap();
    });
}

/// Statistics are read while other threads write them: no figure is negative.
#[test]
fn statistics_are_read_while_another_allocates() {
    loom::model(|| {
        let allocator = allocator();
        let other = {
            let allocator = allocator.clone();
            thread::spawn(move || drop(block(&allocator, 100)))
        };
        let all = allocator.stats().totals.all;
        assert!(all.frees <= all.allocations && all.live_bytes <= 128);
        other.join().unwrap();
        quiet(&allocator, 1);
    });
}
