//! The ends of allocators, over every engine: whichever goes last, a handle or a block, and on whichever thread.
//!
//! `cargo xtask san` has Miri run these with many seeds and under both of its models of references, and ThreadSanitizer run
//! them on the machine.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::adaptor::Limit;
use crate::backing::System;
use crate::caching::Caching;
use crate::central::Central;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator as _, AllocatorRef, Block, Event, Observer, RegionAction, Request};
use orlop_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// How often what depends on chance is tried; Miri tries it with many seeds.
const ROUNDS: usize = if cfg!(miri) { 1 } else { 50 };

/// One of each.
fn each(test: impl Fn(AllocatorRef)) {
    test(Caching::builder(System::new()).build().erase());
    test(Pow2::new(System::new()).erase());
    test(Pool::builder(System::new()).build().erase());
    test(Central::builder(System::new()).build().erase());
    test(Direct::new(System::new()).erase());
    // To a cell these are as `Direct`. Under Miri each takes seconds.
    if !cfg!(miri) {
        test(Arena::new(System::new(), 1 << 12).erase());
        test(AllocatorRef::new(Limit::new(Caching::builder(System::new()).build(), 1 << 30)).erase());
    }
}

fn block(allocator: &AllocatorRef) -> Block {
    allocator.allocate(&Request::new(100)).unwrap()
}

/// The one that knows of the other's end only by a flag, which orders nothing.
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

/// Functions that count out are still returning when the engine goes.
#[test]
fn the_last_handle_and_the_last_block_at_once() {
    for _ in 0..ROUNDS {
        each(|allocator| {
            // What is cached opens the quick way back.
            drop([block(&allocator), block(&allocator)]);
            let block = block(&allocator);
            let other = thread::spawn(move || drop(block));
            drop(allocator);
            other.join().unwrap();
        });
    }
}

/// Both threads have slots, and what each returns is the other's.
#[test]
fn blocks_go_home_while_the_last_handle_goes() {
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

/// Holds a handle, and drops it when it is told of this.
struct Drops {
    when: fn(&Event<'_>) -> bool,
    handle: Mutex<Option<AllocatorRef>>,
    told: AtomicU64,
}

impl Observer for Drops {
    fn observe(&self, event: &Event<'_>) {
        if (self.when)(event) {
            let handle = self.handle.lock().take();
            self.told.fetch_add(handle.is_some().into(), Ordering::Relaxed);
            drop(handle);
        }
    }
}

/// Who is told of a block's return, or of a region's, which is when the block has left, has the last handle.
#[test]
fn an_observer_drops_the_last_handle() {
    let freed: fn(&Event<'_>) -> bool = |event| matches!(event, Event::Freed { .. });
    let lost: fn(&Event<'_>) -> bool =
        |event| matches!(event, Event::Region { event, .. } if event.action == RegionAction::Lost);
    let some_lose = AtomicU64::new(0);
    for when in [freed, lost] {
        each(|allocator| {
            let drops = Arc::new(Drops { when, handle: Mutex::default(), told: AtomicU64::new(0) });
            allocator.set_observer(Some(Arc::clone(&drops) as Arc<dyn Observer>));
            let block = block(&allocator);
            *drops.handle.lock() = Some(allocator);
            drop(block);
            some_lose.fetch_add(drops.told.load(Ordering::Relaxed), Ordering::Relaxed);
            // An engine that keeps its regions goes here.
            let handle = drops.handle.lock().take();
            drop(handle);
        });
    }
    assert!(some_lose.load(Ordering::Relaxed) >= 5, "each told of a block, and some of regions");
}

/// An observer whose end needs the allocator that it observed.
struct Lingers {
    allocator: AllocatorRef,
    ended: Arc<AtomicBool>,
}

impl Observer for Lingers {
    fn observe(&self, _: &Event<'_>) {}
}

impl Drop for Lingers {
    fn drop(&mut self) {
        let allocator = &self.allocator;
        drop(allocator.allocate(&Request::new(1 << 12)));
        allocator.trim(0);
        allocator.verify().unwrap();
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Engines forget who does not look any more when the next one comes, and nobody's end runs under their locks.
#[test]
fn an_observers_end_may_use_the_allocator() {
    each(|allocator| {
        let ended = Arc::new(AtomicBool::new(false));
        let lingers = Lingers { allocator: allocator.clone(), ended: Arc::clone(&ended) };
        allocator.set_observer(Some(Arc::new(lingers)));
        drop(block(&allocator));
        allocator.set_observer(None);
        let quiet = Drops { when: |_| false, handle: Mutex::default(), told: AtomicU64::new(0) };
        allocator.set_observer(Some(Arc::new(quiet)));
        assert!(ended.load(Ordering::Relaxed), "{}", allocator.name());
        drop(block(&allocator));
    });
}
