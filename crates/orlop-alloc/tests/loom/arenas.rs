//! Arenas over address space: the lease of the current segment, frees on other threads, rewinds.
//!
//! In models a thread gets the lease with its first allocation.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use orlop_alloc::backing::{Null, System};
use orlop_alloc::engine::{Arena, ThreadArenas};
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Error, Request};
use orlop_core::Device;
use std::sync::Arc;

fn arena() -> AllocatorRef<Arena<Null>> {
    Arena::new(Null::new(Device::CPU), 4096).into_ref()
}

fn block(arena: &AllocatorRef<Arena<Null>>) -> Block {
    arena.allocate(&Request::new(100)).unwrap()
}

/// A block is freed on another thread while its own goes on, with the lease: no free is lost.
#[test]
fn frees_elsewhere_reach_the_arena() {
    loom::model(|| {
        let arena = arena();
        let moved = block(&arena);
        let other = thread::spawn(move || drop(moved));
        drop(block(&arena));
        other.join().unwrap();
        arena.verify().unwrap();
        arena.reset().unwrap();
        let all = arena.stats().totals.all;
        assert_eq!((all.allocations, all.frees), (2, 2));
    });
}

/// A thread rewinds while another allocates: a rewind is refused while a block is live, so its bytes are not
/// handed out again.
#[test]
fn no_rewind_takes_a_live_block() {
    loom::model(|| {
        let arena = arena();
        let live = Arc::new(AtomicUsize::new(0));
        let other = {
            let (arena, live) = (arena.clone(), Arc::clone(&live));
            thread::spawn(move || {
                let block = block(&arena);
                live.store(block.as_ptr().addr().get(), Ordering::SeqCst);
                live.store(0, Ordering::SeqCst);
                drop(block);
            })
        };
        match arena.reset() {
            Ok(()) | Err(Error::ArenaInUse { live: 1 }) => {}
            other => panic!("{other:?}"),
        }
        let mine = block(&arena);
        assert_ne!(live.load(Ordering::SeqCst), mine.as_ptr().addr().get());
        drop(mine);
        other.join().unwrap();
        arena.reset().unwrap();
    });
}

/// Two threads allocate from one arena: each ends the lease of the other.
#[test]
fn leases_end_when_another_thread_allocates() {
    loom::model(|| {
        let arena = arena();
        let first = block(&arena);
        let other = {
            let arena = arena.clone();
            thread::spawn(move || block(&arena))
        };
        let second = block(&arena);
        let third = other.join().unwrap();
        let mut addresses = [&first, &second, &third].map(|block| block.as_ptr().addr().get());
        addresses.sort_unstable();
        assert!(addresses[0] + 100 <= addresses[1] && addresses[1] + 100 <= addresses[2]);
        assert!(matches!(arena.reset(), Err(Error::ArenaInUse { live: 3 })));
        drop((first, second, third));
        arena.reset().unwrap();
    });
}

/// The block of one thread's arena is freed on another, which has an arena of its own.
#[test]
fn blocks_return_to_the_arena_of_their_thread() {
    loom::model(|| {
        let arenas = ThreadArenas::new(System::new(), 4096).into_ref();
        let allocate =
            |arenas: &AllocatorRef<ThreadArenas<System>>| arenas.allocate(&Request::new(100)).unwrap();
        let moved = allocate(&arenas);
        let other = {
            let arenas = arenas.clone();
            thread::spawn(move || {
                let own = allocate(&arenas);
                drop(moved);
                drop(own);
                arenas.reset().unwrap();
            })
        };
        match arenas.reset() {
            Ok(()) | Err(Error::ArenaInUse { live: 1 }) => {}
            other => panic!("{other:?}"),
        }
        other.join().unwrap();
        arenas.reset().unwrap();
        arenas.verify().unwrap();
    });
}
