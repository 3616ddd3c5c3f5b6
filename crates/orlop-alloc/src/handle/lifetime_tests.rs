//! The last handle and the last block of an allocator, for every engine: dropped in either order, on either
//! thread.
//!
//! `cargo xtask san` runs these under Miri with many seeds and with both of its aliasing models, and under
//! ThreadSanitizer.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::adaptor::Limit;
use crate::backing::System;
use crate::bfc::Bfc;
use crate::caching::Caching;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator as _, AllocatorRef, Block, Event, Observer, RegionAction, Request};
use orlop_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Repetitions of the tests that depend on timing; Miri tries many seeds.
const ROUNDS: usize = if cfg!(miri) { 1 } else { 50 };

/// Runs the test with one allocator of each engine.
fn each(test: impl Fn(AllocatorRef)) {
    test(Caching::new(System::new()).into_ref().erase());
    test(Pow2::new(System::new()).into_ref().erase());
    test(Pool::new(System::new()).into_ref().erase());
    test(Bfc::new(System::new()).into_ref().erase());
    test(Direct::new(System::new()).into_ref().erase());
    // To the cell, these are the same as `Direct`. Under Miri each takes seconds.
    if !cfg!(miri) {
        test(Arena::new(System::new(), 1 << 12).into_ref().erase());
        test(Limit::new(Caching::new(System::new()).into_ref(), 1 << 30).into_ref().erase());
    }
}

fn block(allocator: &AllocatorRef) -> Block {
    allocator.allocate(&Request::new(100)).unwrap()
}

/// The thread that drops the block learns that the handle is gone by a flag that orders no memory accesses.
#[test]
fn the_last_handle_here_and_then_the_last_block_there() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            let (block, gone) = (block(&allocator), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !gone.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                    drop(block);
                });
                drop(allocator);
                gone.store(true, Ordering::Relaxed);
            });
        });
    }
}

#[test]
fn the_last_block_there_and_then_the_last_handle_here() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            let (block, gone) = (block(&allocator), AtomicBool::new(false));
            thread::scope(|scope| {
                let gone = &gone;
                scope.spawn(move || {
                    drop(block);
                    gone.store(true, Ordering::Relaxed);
                });
                while !gone.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(allocator);
            });
        });
    }
}

/// Functions that count a block out may still be returning when the engine is destroyed.
#[test]
fn the_last_handle_and_the_last_block_at_once() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            // Cached blocks open the fast path of frees.
            drop([block(&allocator), block(&allocator)]);
            let block = block(&allocator);
            let other = thread::spawn(move || drop(block));
            drop(allocator);
            other.join().unwrap();
        });
    }
}

/// Counts frees.
#[derive(Default)]
struct CountsFrees(AtomicU64);

impl Observer for CountsFrees {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Freed { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The same with an observer, whose list is in the cell that the last of the two destroys.
#[test]
fn the_last_handle_and_the_last_observed_block_at_once() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            let frees = Arc::new(CountsFrees::default());
            allocator.add_observer(Arc::clone(&frees) as Arc<dyn Observer>);
            drop([block(&allocator), block(&allocator)]);
            let block = block(&allocator);
            let other = thread::spawn(move || drop(block));
            drop(allocator);
            other.join().unwrap();
            assert_eq!((frees.0.load(Ordering::Relaxed), Arc::strong_count(&frees)), (3, 1));
        });
    }
}

/// Both threads have slots, and each frees blocks of the other.
#[test]
fn remote_frees_while_the_last_handle_goes() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            let mine = [block(&allocator), block(&allocator)];
            let there = allocator.clone();
            let other = thread::spawn(move || {
                let theirs = block(&there);
                drop(there);
                drop(mine);
                theirs
            });
            drop(allocator);
            drop(other.join().unwrap());
        });
    }
}

/// Holds a handle, and drops it at the first event that matches.
struct DropsHandle {
    when: fn(&Event<'_>) -> bool,
    handle: Mutex<Option<AllocatorRef>>,
    dropped: AtomicU64,
}

impl Observer for DropsHandle {
    fn observe(&self, event: &Event<'_>) {
        if (self.when)(event) {
            let handle = self.handle.lock().take();
            self.dropped.fetch_add(handle.is_some().into(), Ordering::Relaxed);
            drop(handle);
        }
    }
}

/// An observer holds the last handle and drops it when a block was freed or a region released, which is after
/// the block was counted out.
#[test]
fn an_observer_drops_the_last_handle() {
    let freed: fn(&Event<'_>) -> bool = |event| matches!(event, Event::Freed { .. });
    let released: fn(&Event<'_>) -> bool =
        |event| matches!(event, Event::Region { event, .. } if event.action == RegionAction::Released);
    let releases = AtomicU64::new(0);
    for when in [freed, released] {
        each(|allocator| {
            let drops = Arc::new(DropsHandle { when, handle: Mutex::default(), dropped: AtomicU64::new(0) });
            allocator.add_observer(Arc::clone(&drops) as Arc<dyn Observer>);
            let block = block(&allocator);
            *drops.handle.lock() = Some(allocator);
            drop(block);
            releases.fetch_add(drops.dropped.load(Ordering::Relaxed), Ordering::Relaxed);
            // An engine that keeps its regions ends here.
            let handle = drops.handle.lock().take();
            drop(handle);
        });
    }
    assert!(releases.load(Ordering::Relaxed) >= 5, "each reported a block, and some reported regions");
}

/// An observer whose destructor uses the allocator that it observed.
struct UsesAllocatorOnDrop {
    allocator: AllocatorRef,
    ended: Arc<AtomicBool>,
}

impl Observer for UsesAllocatorOnDrop {
    fn observe(&self, _: &Event<'_>) {}
}

impl Drop for UsesAllocatorOnDrop {
    fn drop(&mut self) {
        let allocator = &self.allocator;
        drop(allocator.allocate(&Request::new(1 << 12)));
        allocator.trim(0);
        allocator.verify().unwrap();
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Engines drop ended watches when the next one is added; no destructor runs under their locks.
#[test]
fn an_observers_end_may_use_the_allocator() {
    each(|allocator| {
        let ended = Arc::new(AtomicBool::new(false));
        let lingers = UsesAllocatorOnDrop { allocator: allocator.clone(), ended: Arc::clone(&ended) };
        allocator.add_observer(Arc::new(lingers));
        drop(block(&allocator));
        for observer in allocator.observers() {
            allocator.remove_observer(&observer);
        }
        let quiet = DropsHandle { when: |_| false, handle: Mutex::default(), dropped: AtomicU64::new(0) };
        allocator.add_observer(Arc::new(quiet));
        assert!(ended.load(Ordering::Relaxed), "{}", allocator.name());
        drop(block(&allocator));
    });
}
