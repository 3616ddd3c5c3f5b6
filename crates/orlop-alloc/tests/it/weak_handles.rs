//! Weak handles to allocators whose code uses those handles, ends the allocator, or panics.

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::engine_support::{RawBlock, WeakAllocator};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request, Result, Usage};
use orlop_core::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the allocator's author does inside its methods.
#[derive(Debug, Default)]
struct Script {
    weak: Mutex<Option<WeakAllocator>>,
    /// Dropped inside a call.
    last: Mutex<Vec<Block>>,
    panics: Mutex<bool>,
    is_dropped: Mutex<bool>,
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    fn play(&self) {
        let weak = locked(&self.weak).take();
        if let Some(weak) = weak {
            assert!(weak.totals().is_some() && !weak.is_destroyed());
            assert!(weak.stats().is_some(), "a visit inside another");
            let last = std::mem::take(&mut *locked(&self.last));
            let ends = !last.is_empty();
            drop(last);
            assert_eq!(weak.is_destroyed(), ends);
            assert!(!*locked(&self.is_dropped), "it is dropped after its method");
        }
        assert!(!*locked(&self.panics), "an author's panic");
    }
}

#[derive(Debug)]
struct Author(Direct<System>, Arc<Script>);

// SAFETY: all promises are the inner engine's, whose blocks return to it.
unsafe impl Allocator for Author {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.0.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.deallocate(block) }
    }

    fn device(&self) -> Device {
        self.0.device()
    }

    fn name(&self) -> &str {
        "author"
    }

    fn usage(&self) -> Usage {
        self.1.play();
        self.0.usage()
    }

    fn wraps(&self, _: &AllocatorRef) -> bool {
        self.1.play();
        true
    }
}

impl Drop for Author {
    fn drop(&mut self) {
        *locked(&self.1.is_dropped) = true;
    }
}

fn author() -> (Arc<Script>, AllocatorRef, WeakAllocator) {
    let script = Arc::<Script>::default();
    let allocator = Author(Direct::new(System::new()), Arc::clone(&script)).into_ref().erase();
    let weak = allocator.downgrade();
    *locked(&script.weak) = Some(weak.clone());
    (script, allocator, weak)
}

/// The author's methods may use the weak handle that calls them.
#[test]
fn an_author_may_use_the_handle_again() {
    let other = Direct::new(System::new()).into_ref().erase();
    let (_script, allocator, weak) = author();
    assert!(weak.wraps(&other));
    assert!(weak.stats().is_some_and(|(name, _)| &*name == "author"));
    drop(allocator);
    assert!(weak.is_destroyed() && weak.stats().is_none() && !weak.wraps(&other));
}

/// The last block is dropped inside a method of its allocator.
#[test]
fn an_allocator_that_ends_inside_its_method_ends_after_it() {
    let other = Direct::new(System::new()).into_ref().erase();
    let calls: [fn(&WeakAllocator, &AllocatorRef) -> bool; 2] =
        [|weak, _| weak.stats().is_some(), |weak, other| weak.wraps(other)];
    for call in calls {
        let (script, allocator, weak) = author();
        locked(&script.last).push(allocator.allocate(&Request::new(100)).unwrap());
        drop(allocator);
        assert!(!weak.is_destroyed());
        assert!(call(&weak, &other));
        assert!(weak.is_destroyed() && *locked(&script.is_dropped));
    }
}

#[test]
fn a_panic_of_an_author_leaves_the_handle_usable() {
    let (script, allocator, weak) = author();
    *locked(&script.panics) = true;
    assert!(catch_unwind(AssertUnwindSafe(|| weak.stats())).is_err());
    *locked(&script.panics) = false;
    assert!(weak.stats().is_some() && weak.upgrade().is_some());
    drop(allocator);
    assert!(weak.is_destroyed() && *locked(&script.is_dropped));
}
