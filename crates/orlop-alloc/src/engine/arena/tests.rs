//! Tests of one arena, with and without a lease, and of arenas of threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use super::*;
use crate::backing::System;
use crate::engine::ThreadArenas;
use crate::{AllocatorRef, Block, Error};
use std::sync::Barrier;
use std::thread;

/// More allocations than a thread needs for a lease.
const ENOUGH: usize = LEASE_AFTER as usize + 2;

fn arena(bytes: usize) -> AllocatorRef<Arena<System>> {
    Arena::new(System::new(), bytes).into_ref()
}

fn block<A: Allocator>(from: &AllocatorRef<A>, bytes: usize) -> Block {
    from.allocate(&Request::new(bytes)).unwrap()
}

fn address(block: &Block) -> usize {
    block.as_ptr().addr().get()
}

/// Returns the block that the fast path serves.
fn cached<A: Allocator>(from: &AllocatorRef<A>, bytes: usize) -> Option<Block> {
    from.allocate_cached(&Request::new(bytes))
}

/// Makes the thread the holder of the lease, with a record for the next block.
fn warm_up<A: Allocator>(from: &AllocatorRef<A>) {
    for _ in 0..ENOUGH {
        drop(block(from, 64));
    }
}

#[test]
fn reset_refuses_with_live_blocks_and_rewinds_without() {
    let arena = arena(4096);
    let block = arena.allocate(&Request::new(100)).unwrap();
    assert!(matches!(arena.reset(), Err(Error::ArenaInUse { live: 1 })));
    let address = block.as_ptr();
    drop(block);
    arena.reset().unwrap();
    assert_eq!(arena.allocate(&Request::new(100)).unwrap().as_ptr(), address);
}

#[test]
fn renew_leaves_live_blocks_their_memory() {
    let arena = arena(4096);
    let mut old = arena.allocate(&Request::new(1000)).unwrap();
    old.bytes_mut().unwrap().fill(7);
    assert_eq!(arena.renew(), Reset::Renewed { live: 1 });
    let mut new = arena.allocate(&Request::new(1000)).unwrap();
    new.bytes_mut().unwrap().fill(9);
    assert!(old.bytes().unwrap().iter().all(|&byte| byte == 7));
    assert_eq!(arena.stats().usage.regions, 2);
    drop(old);
    assert_eq!(arena.stats().usage.regions, 1);
}

#[test]
fn a_loop_settles_on_one_segment() {
    let arena = arena(1024);
    for _ in 0..3 {
        let blocks: Vec<_> = (0..10).map(|_| block(&arena, 1000)).collect();
        drop(blocks);
        arena.reset().unwrap();
    }
    assert_eq!(arena.stats().usage.regions, 1);
    assert!(arena.stats().usage.reserved >= 10_000);
}

#[test]
fn the_limit_holds() {
    let arena = Arena::with_limit(System::new(), 1024, 2048).into_ref();
    let _first = arena.allocate(&Request::new(1024)).unwrap();
    let error = arena.allocate(&Request::new(4096)).unwrap_err();
    assert!(error.is_out_of_memory());
}

/// With a lease, the steps of a loop take the same memory, and every figure is exact.
#[test]
fn a_lease_changes_no_promise() {
    let arena = arena(1 << 16);
    warm_up(&arena);
    // The fast path needs a record for each live block, and stays below the peak.
    (0..3).for_each(|_| drop([400; 4].map(|bytes| block(&arena, bytes))));
    arena.reset().unwrap();
    let mut first = None;
    for _ in 0..3 {
        let a = block(&arena, 100);
        let Some(b) = cached(&arena, 200) else {
            // The system has no asymmetric fence, so no thread has a fast path.
            assert!(orlop_sync::thread_slot::index() >= orlop_sync::thread_slot::OWNED);
            return;
        };
        assert_eq!(*first.get_or_insert(a.as_ptr()), a.as_ptr());
        assert_eq!(address(&b) - address(&a), 128);
        assert_eq!((arena.used(), arena.stats().totals.all.live_bytes), (328, 300));
        // `used` ended the lease; the next allocation renews it.
        let c = block(&arena, 64);
        let d = cached(&arena, 64);
        assert!(
            matches!(arena.reset(), Err(Error::ArenaInUse { live }) if live == 3 + usize::from(d.is_some()))
        );
        arena.verify().unwrap();
        drop((a, b, c, d));
        arena.reset().unwrap();
        assert_eq!(arena.stats().totals.all.live_blocks(), 0);
    }
    assert_eq!(arena.stats().usage.regions, 1);
}

#[test]
fn the_fast_path_leaves_zeros_padding_and_limits_to_the_slow_one() {
    let arena = Arena::with_limit(System::new(), 4096, 4096).into_ref();
    warm_up(&arena);
    arena.reset().unwrap();
    block(&arena, 512).bytes_mut().unwrap().fill(7);
    arena.reset().unwrap();
    drop(block(&arena, 1));
    assert!(arena.allocate_cached(&Request::new(64).zeroed()).is_none());
    let zeros = arena.allocate(&Request::new(256).zeroed()).unwrap();
    assert!(zeros.bytes().unwrap().iter().all(|&byte| byte == 0));
    let aligned = arena.allocate(&Request::new(10).align(orlop_core::Alignment::new(1024).unwrap())).unwrap();
    assert_eq!(address(&aligned) % 1024, 0);
    for bytes in [4096, 1 << 20, usize::MAX, usize::MAX - 63] {
        assert!(cached(&arena, bytes).is_none());
        assert!(arena.allocate(&Request::new(bytes)).is_err());
    }
    drop((zeros, aligned));
    arena.verify().unwrap();
    arena.reset().unwrap();
    // The whole segment, to its last byte.
    drop((block(&arena, 2048), block(&arena, 2048)));
    assert_eq!(arena.used(), 4096);
}

/// The last block can grow, whether its segment is leased or not; bytes are counted.
#[test]
fn the_last_block_of_a_lease_grows() {
    let arena = arena(1 << 16);
    warm_up(&arena);
    let other = block(&arena, 64);
    let mut last = block(&arena, 64);
    assert!(last.grow_in_place(1000));
    let next = block(&arena, 64);
    assert!(address(&next) >= address(&last) + 1000);
    assert!(!last.grow_in_place(2000));
    assert_eq!(arena.stats().totals.all.live_bytes, 64 + 1000 + 64);
    drop((other, last, next));
    assert_eq!(arena.stats().totals.all.live_bytes, 0);
    arena.reset().unwrap();
}

/// Blocks of a lease that other threads free are counted out of its segment, on every thread that rewinds it.
#[test]
fn frees_of_other_threads_reach_the_lease() {
    let arena = arena(1 << 16);
    warm_up(&arena);
    let (moved, kept) = (block(&arena, 100), block(&arena, 100));
    thread::scope(|scope| {
        let arena = &arena;
        scope.spawn(move || {
            drop(moved);
            let refused = arena.reset().unwrap_err();
            assert!(matches!(refused, Error::ArenaInUse { live: 1 }));
            assert!(
                refused.to_string().starts_with("the arena has 1 live block and cannot be rewound: drop it")
            );
        });
    });
    assert!(matches!(arena.reset(), Err(Error::ArenaInUse { live: 1 })));
    drop(kept);
    thread::scope(|scope| scope.spawn(|| arena.reset().unwrap()).join().unwrap());
    assert_eq!((arena.used(), arena.stats().totals.all.live_blocks()), (0, 0));
    arena.verify().unwrap();
}

/// A retired segment is released with its last block, wherever that is freed.
#[test]
fn a_retired_segment_goes_with_its_last_block() {
    let arenas = ThreadArenas::new(System::new(), 4096).into_ref();
    warm_up(&arenas);
    let (mine, theirs) = (block(&arenas, 64), block(&arenas, 64));
    assert_eq!(arenas.renew(), Reset::Renewed { live: 2 });
    let new = block(&arenas, 64);
    assert_eq!(arenas.stats().usage.regions, 2);
    drop(mine);
    thread::scope(|scope| scope.spawn(|| drop(theirs)).join().unwrap());
    assert_eq!(arenas.stats().usage.regions, 1);
    drop(new);
    assert_eq!(arenas.trim(0), 4096);
    arenas.verify().unwrap();
}

/// Another thread trims what this thread has leased, and only if no block is live.
#[test]
fn trim_ends_the_leases_of_all_threads() {
    let arenas = ThreadArenas::new(System::new(), 4096).into_ref();
    warm_up(&arenas);
    let kept = block(&arenas, 64);
    let trim = || thread::scope(|scope| scope.spawn(|| arenas.trim(0)).join().unwrap());
    assert_eq!(trim(), 0);
    drop(kept);
    assert_eq!(trim(), 4096);
    assert_eq!(arenas.stats().usage.reserved, 0);
    warm_up(&arenas);
    assert_eq!(arenas.stats().usage.reserved, 4096);
}

/// Threads allocate, pass blocks on and rewind at the same time. No block is overwritten, and at the end no
/// block is counted.
fn rewinds_race_with_frees<A: Allocator>(arena: &AllocatorRef<A>, reset: impl Fn() -> Result<()> + Sync) {
    let rounds = if cfg!(miri) { 3 } else { 2000 };
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let (to_other, from_here) = std::sync::mpsc::sync_channel::<(u8, Block)>(4);
        let (start, reset) = (&start, &reset);
        scope.spawn(move || {
            start.wait();
            for (fill, block) in from_here {
                assert!(block.bytes().unwrap().iter().all(|&byte| byte == fill));
                drop(block);
                let mut own = arena.allocate(&Request::new(32)).unwrap();
                own.bytes_mut().unwrap().fill(!fill);
                let refused = reset();
                assert!(own.bytes().unwrap().iter().all(|&byte| byte == !fill));
                assert!(matches!(refused, Err(Error::ArenaInUse { .. })), "its own block is live");
            }
        });
        start.wait();
        for round in 0..rounds {
            let fill = u8::try_from(round % 251).unwrap();
            let mut moved = arena.allocate(&Request::new(48)).unwrap();
            moved.bytes_mut().unwrap().fill(fill);
            let mut kept = arena.allocate(&Request::new(16)).unwrap();
            kept.bytes_mut().unwrap().fill(!fill);
            to_other.send((fill, moved)).unwrap();
            assert!(matches!(reset(), Err(Error::ArenaInUse { .. })), "`kept` is live");
            assert!(kept.bytes().unwrap().iter().all(|&byte| byte == !fill));
            drop(kept);
            // Succeeds or not, depending on the other thread.
            drop(reset());
        }
        drop(to_other);
    });
    reset().unwrap();
    arena.verify().unwrap();
    assert_eq!(arena.stats().totals.all.live_blocks(), 0);
    assert_eq!(arena.stats().refused_frees, 0);
}

#[test]
fn rewinds_of_one_arena_race_with_frees() {
    let arena = arena(1 << 12);
    rewinds_race_with_frees(&arena.clone(), || arena.reset());
}

#[test]
fn rewinds_of_arenas_of_threads_race_with_frees() {
    let arenas = ThreadArenas::new(System::new(), 1 << 12).into_ref();
    rewinds_race_with_frees(&arenas.clone(), || arenas.reset());
}

/// A block outlives its handle, its lease and its thread.
#[test]
fn a_block_of_a_lease_outlives_the_handle() {
    for end_here in [true, false] {
        let arenas = ThreadArenas::new(System::new(), 4096).into_ref();
        warm_up(&arenas);
        let mut last = block(&arenas, 64);
        drop(arenas);
        last.bytes_mut().unwrap().fill(1);
        if end_here {
            drop(last);
        } else {
            thread::scope(|scope| scope.spawn(|| drop(last)).join().unwrap());
        }
    }
}

/// The steps of a policy: alone for a while, then a lease; each revocation doubles the while.
#[test]
fn a_lease_ended_by_others_is_given_later() {
    let mut policy = segments::LeasePolicy::new(2);
    let until_lease = |policy: &mut segments::LeasePolicy| (1..).find(|_| policy.note_allocation(0)).unwrap();
    assert_eq!(until_lease(&mut policy), 3);
    policy.note_revocation();
    assert_eq!(until_lease(&mut policy), 5);
    assert!(!policy.note_allocation(1), "another slot begins anew");
    assert_eq!(until_lease(&mut policy), 5);
    (0..40).for_each(|_| policy.note_revocation());
    assert_eq!(until_lease(&mut policy), 4097);
}
