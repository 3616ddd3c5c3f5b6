//! Growth of blocks in place behind adaptors, and what each adaptor counts.

use orlop_alloc::adaptor::{Decision, Failing, Hardened, Hardening, Limit, Retry, Tracking, Waiting};
use orlop_alloc::backing::System;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Arena;
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use std::time::Duration;

/// Returns an allocator whose last block can grow in place.
fn upstream() -> AllocatorRef {
    Arena::new(System::new(), 1 << 16).into_ref().erase()
}

/// Returns a block that grew from 1000 to 3000 bytes without moving.
fn grown<A: Allocator>(allocator: &AllocatorRef<A>) -> Block {
    let mut block = allocator.allocate(&Request::new(1000)).expect("there is memory");
    let ptr = block.as_ptr();
    assert!(block.grow_in_place(3000), "{}", allocator.name());
    assert_eq!((block.as_ptr(), block.len()), (ptr, 3000));
    let account = allocator.stats().totals.all;
    assert_eq!((account.live_bytes, account.requested_bytes), (block.capacity() as u64, 3000));
    block
}

#[test]
fn adaptors_that_count_nothing_hand_growth_on() {
    drop(grown(&Retry::new(upstream(), 1, |_, _, _| Decision::GiveUp).into_ref()));
    drop(grown(&Waiting::new(upstream(), Duration::from_secs(1)).into_ref()));
    let caching =
        Retry::new(Caching::new(System::new()).into_ref(), 1, |_, _, _| Decision::GiveUp).into_ref();
    drop(grown(&caching));
    assert_eq!(caching.inner().stats().live(), 0);
}

#[test]
fn a_limit_counts_growth_or_refuses_it() {
    let upstream = upstream();
    let allocator = Limit::new(upstream.clone(), 4096).into_ref();
    let mut block = grown(&allocator);
    assert_eq!(allocator.used(), block.capacity());
    // 4000 bytes would fit, but they are rounded up to a multiple of 256.
    allocator.set_limit(4090);
    assert!(!block.grow_in_place(4000) && block.len() == 3000);
    assert!(!block.grow_in_place(usize::MAX));
    assert_eq!((allocator.used(), upstream.stats().live()), (block.capacity(), block.capacity() as u64));
    allocator.set_limit(4096);
    assert!(block.grow_in_place(4096));
    assert!(!block.grow_in_place(4097) && allocator.allocate(&Request::new(1)).is_err());
    drop(block);
    assert_eq!((allocator.used(), upstream.stats().live()), (0, 0));
}

#[test]
fn a_refusal_upstream_leaves_nothing_charged() {
    let allocator = Limit::new(upstream(), 1 << 15).into_ref();
    let mut first = grown(&allocator);
    let last = allocator.allocate(&Request::new(100)).expect("there is memory");
    assert!(!first.grow_in_place(4000), "it is not the last");
    assert_eq!(allocator.used(), first.capacity() + last.capacity());
}

#[test]
fn tracking_knows_the_new_size() {
    let allocator = Tracking::new(upstream()).into_ref();
    let block = grown(&allocator);
    let (id, capacity) = (block.id(), block.capacity());
    let live = allocator.live();
    assert_eq!((live[0].requested, live[0].granted, live[0].id), (3000, capacity, id));
    assert_eq!((allocator.live_bytes(), allocator.high_water_mark()), (capacity as u64, capacity as u64));
    let ptr = block.into_raw_ptr().expect("it frees bare addresses");
    // SAFETY: given up just above, and freed once.
    let freed = unsafe { allocator.free(ptr, None) };
    assert!(freed.is_ok() && allocator.live_bytes() == 0, "{freed:?}");
}

/// As their documentation says.
#[test]
fn failing_and_hardened_refuse_growth() {
    let failing = Failing::new(upstream(), []).into_ref();
    let hardened = Hardened::new(upstream(), Hardening::new()).into_ref();
    for mut block in [failing.allocate(&Request::new(1000)), hardened.allocate(&Request::new(1000))]
        .map(|block| block.expect("there is memory"))
    {
        assert!(!block.grow_in_place(3000) && block.len() == 1000);
    }
    assert_eq!(hardened.found(), 0);
}

#[test]
fn a_block_that_grows_may_be_the_largest() {
    for allocator in [upstream(), Caching::new(System::new()).into_ref().erase()] {
        let mut block = allocator.allocate(&Request::new(1 << 10)).unwrap();
        assert!(block.grow_in_place(1 << 12), "{}", allocator.name());
        assert_eq!(allocator.stats().totals.largest, block.capacity() as u64, "{}", allocator.name());
    }
}
