//! Values sharded by thread slot, each behind a one-word lock.
//!
//! # Why a lock at all
//!
//! A thread-local value can be reached by its own thread only: it must be flushed by a destructor at thread
//! exit, cannot be trimmed while its thread sleeps, and cannot be summed by a reader. A slot belongs to the
//! *allocator*; a thread merely prefers one (see [`super::thread_slot`]). Taking an uncontended slot is one
//! atomic exchange on a cache line that no other thread writes, about 2 ns, and giving it back is a plain
//! store. In
//! return any thread may visit every slot, thread exit needs no code, and two threads that happen to share
//! a slot are merely slower, never wrong.
//!
//! # Ordering
//!
//! The exchange that takes the lock (`slots.take`, acquire) pairs with the store that gives it back
//! (`slots.give`, release): what one holder wrote, the next one sees.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Backoff, UnsafeCell, ordering};
use crossbeam_utils::CachePadded;
use std::fmt;

/// One `T` per slot; see the source for the argument.
pub struct Slots<T> {
    /// Invariant: the length is a power of two.
    slots: Box<[CachePadded<Slot<T>>]>,
}

struct Slot<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a `&Slots` gives access to a `T` only through `Slot::hold`, whose `taken` word admits one thread
// at a time and orders each holder after the one before (`slots.take`/`slots.give`). That is what a mutex
// does, so the bound is a mutex's: `T` is moved between threads in effect, never shared.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// `count` slots, rounded up to a power of two, each made by `make`.
    pub fn new(count: usize, mut make: impl FnMut() -> T) -> Self {
        let slots = (0..count.max(1).next_power_of_two())
            .map(|_| CachePadded::new(Slot { taken: AtomicBool::new(false), value: UnsafeCell::new(make()) }))
            .collect();
        Self { slots }
    }

    /// How many slots there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Runs `f` on the value of slot `index` (reduced modulo the number of slots), waiting until it is free.
    ///
    /// `f` must be short and must not come back to the same slot: that would wait for ever.
    #[inline(always)]
    pub fn with<R>(&self, index: usize, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = self.slot(index);
        if !slot.try_take() {
            slot.wait();
        }
        slot.hold(f)
    }

    /// Like [`Slots::with`], or `None` at once if another thread holds the slot.
    #[inline]
    pub fn try_with<R>(&self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let slot = self.slot(index);
        slot.try_take().then(|| slot.hold(f))
    }

    /// Visits every slot in turn.
    pub fn for_each(&self, mut f: impl FnMut(&mut T)) {
        for index in 0..self.count() {
            self.with(index, &mut f);
        }
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        let mask = self.slots.len() - 1;
        // SAFETY: the length is a power of two (`new`), so what the mask leaves is below it.
        unsafe { self.slots.get_unchecked(index & mask) }
    }
}

impl<T> Slot<T> {
    #[inline(always)]
    fn try_take(&self) -> bool {
        // An exchange that fails writes nothing: the line stays with its holder.
        let take = ordering!("slots.take", Acquire);
        self.taken.compare_exchange(false, true, take, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let backoff = Backoff::new();
        loop {
            backoff.wait();
            // Look before exchanging: waiting threads share the line instead of passing it around. (Under
            // loom a relaxed load may never see the newest store; an exchange always does.)
            let free = cfg!(loom) || !self.taken.load(Ordering::Relaxed);
            if free && self.try_take() {
                return;
            }
        }
    }

    /// Runs `f` on the value. The caller has just taken the slot; it is given back also when `f` panics.
    #[inline(always)]
    fn hold<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        struct GiveBack<'a>(&'a AtomicBool);
        impl Drop for GiveBack<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.store(false, ordering!("slots.give", Release));
            }
        }
        let _give_back = GiveBack(&self.taken);
        self.value.with_mut(|value| {
            // SAFETY: `taken` went from false to true in this thread's exchange and `GiveBack` has not run, so
            // no other thread is between those two points: the reference is the only one.
            f(unsafe { &mut *value })
        })
    }
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("count", &self.count()).finish_non_exhaustive()
    }
}
