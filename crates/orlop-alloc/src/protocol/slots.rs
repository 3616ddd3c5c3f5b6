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
use crate::sync::{Backoff, MutPtr, UnsafeCell, ordering};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// One `T` per slot; see the source for the argument.
pub struct Slots<T> {
    /// Invariant: the length is a power of two.
    slots: Box<[CachePadded<Slot<T>>]>,
}

struct Slot<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a `&Slots` gives access to a `T` only through `Held`, whose `taken` word admits one thread
// at a time and orders each holder after the one before (`slots.take`/`slots.give`). That is what a mutex
// does, so the bound is a mutex's: `T` is moved between threads in effect, never shared.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// `count` slots (1 to 65,536), rounded up to a power of two, each made by `make`.
    pub fn new(count: usize, mut make: impl FnMut() -> T) -> Self {
        let slots = (0..count.clamp(1, 1 << 16).next_power_of_two())
            .map(|_| CachePadded::new(Slot { taken: AtomicBool::new(false), value: UnsafeCell::new(make()) }))
            .collect();
        Self { slots }
    }

    /// How many slots there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Takes slot `index` (reduced modulo the number of slots), waiting until it is free.
    ///
    /// Hold it for a few instructions only, and never two: threads that hold each other's would wait for ever.
    #[inline(always)]
    pub fn hold(&self, index: usize) -> Held<'_, T> {
        let slot = self.slot(index);
        if !slot.try_take() {
            slot.wait();
        }
        slot.held()
    }

    /// Like [`Slots::hold`], or `None` at once if another thread holds the slot.
    #[inline]
    pub fn try_hold(&self, index: usize) -> Option<Held<'_, T>> {
        let slot = self.slot(index);
        slot.try_take().then(|| slot.held())
    }

    /// Runs `f` on the value of a slot.
    #[inline]
    pub fn with<R>(&self, index: usize, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.hold(index))
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

    /// The guard of a slot that the caller has just taken.
    #[inline(always)]
    fn held(&self) -> Held<'_, T> {
        Held { value: self.value.get_mut(), _give_back: GiveBack(&self.taken) }
    }
}

/// A slot that this thread holds, until it is dropped.
pub struct Held<'a, T> {
    // Dropped in this order: the access ends before the slot is given back.
    value: MutPtr<T>,
    _give_back: GiveBack<'a>,
}

struct GiveBack<'a>(&'a AtomicBool);

impl Drop for GiveBack<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(false, ordering!("slots.give", Release));
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `taken` went from false to true in this thread's exchange and `GiveBack` has not run, so no
        // other thread is between those two points, and `self` is borrowed for as long as the reference lives.
        unsafe { self.value.deref() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { self.value.deref() }
    }
}

impl<T> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("count", &self.count()).finish_non_exhaustive()
    }
}
