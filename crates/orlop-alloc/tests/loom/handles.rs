//! Blocks create handles of an allocator, and are observed, while its last handle is dropped.

use loom::thread;
use orlop_alloc::backing::Null;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Event, MemoryBlock, Observer, Request};
use orlop_core::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn shared_block(allocator: &AllocatorRef<Direct<Null>>) -> MemoryBlock {
    allocator.allocate(&Request::new(64)).unwrap().share()
}

/// One owner of a block creates a handle while the other owner drops the block and the last handle is
/// dropped.
#[test]
fn an_owner_asks_while_the_other_and_the_last_handle_go() {
    loom::model(|| {
        let allocator = Direct::new(Null::new(Device::CPU)).into_ref();
        let block = shared_block(&allocator);
        let theirs = block.clone();
        let other = thread::spawn(move || {
            drop(theirs);
            drop(allocator);
        });
        let handle = block.allocator();
        drop(block);
        if let Some(handle) = handle {
            assert_eq!(handle.stats().totals.all.allocations, 1);
        }
        other.join().unwrap();
    });
}

/// Counts the frees that it receives.
#[derive(Default)]
struct Frees(AtomicU32);

impl Observer for Frees {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Freed { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A block is freed, and observed, while the last handle is dropped: whichever is last destroys the list of
/// observers.
#[test]
fn an_observed_free_and_the_last_handle() {
    loom::model(|| {
        let frees = Arc::new(Frees::default());
        let allocator = Direct::new(Null::new(Device::CPU)).into_ref();
        drop(allocator.add_observer(frees.clone()));
        let block = allocator.allocate(&Request::new(64)).unwrap();
        let other = thread::spawn(move || drop(block));
        drop(allocator);
        other.join().unwrap();
        assert_eq!((frees.0.load(Ordering::Relaxed), Arc::strong_count(&frees)), (1, 1));
    });
}

/// A block is freed while its observer is removed: the observer may receive that, and is dropped.
#[test]
fn an_observed_free_and_the_observers_removal() {
    loom::model(|| {
        let frees = Arc::new(Frees::default());
        let allocator = Direct::new(Null::new(Device::CPU)).into_ref();
        drop(allocator.add_observer(frees.clone()));
        let block = allocator.allocate(&Request::new(64)).unwrap();
        let other = thread::spawn(move || drop(block));
        drop(allocator.remove_observer(&(frees.clone() as Arc<dyn Observer>)));
        other.join().unwrap();
        drop(allocator);
        assert!(frees.0.load(Ordering::Relaxed) <= 1);
        assert_eq!(Arc::strong_count(&frees), 1);
    });
}
