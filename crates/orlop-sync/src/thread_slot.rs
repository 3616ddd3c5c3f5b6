//! Assigns slots to threads.
//!
//! Slot numbers are small: the lowest free one is assigned, and a thread releases its number when it ends.
//! So a program with eight threads uses eight slots, however many threads it starts over time. Each of the
//! first [`OWNED`] slots belongs to one thread, which [`Slots`](super::Slots) relies on. The others are
//! shared: by threads that found no free slot, by threads that are ending, and by all threads where the
//! system has no asymmetric fence.
//!
//! Nothing here allocates, and all of it works during thread exit.
//!
//! # No number outside
//!
//! A number is a thread's own until its thread-locals are destroyed, and then another thread's, while code of
//! older thread-locals still runs. So the right to use a slot is looked up where it is used, and no guard,
//! and nothing else that stands for it, leaves a call. [`index`] is a plain number.
//!
//! # Ordering
//!
//! A number is released with release ordering and taken with acquire: the next owner of a slot sees what the
//! previous one stored in it.

use crate::primitives::fence::asymmetric;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of slots that belong to one thread each. Few under model checkers, which explore each slot.
pub const OWNED: usize = if cfg!(loom) {
    2
} else if cfg!(miri) {
    4
} else {
    32
};

/// The number of all slots: [`OWNED`] owned ones, then the same number of shared ones.
pub const SLOTS: usize = 2 * OWNED;

/// The right of the calling thread to use a slot. It is looked up at each use, and not kept: it ends when the
/// thread's locals are destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadSlot {
    /// Invariant: below [`SLOTS`].
    index: usize,
    /// Tied to its thread.
    thread: PhantomData<*const ()>,
}

impl ThreadSlot {
    /// Returns the slot's index, below [`SLOTS`].
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.index
    }
}

/// Returns the index of the calling thread's slot, below [`SLOTS`], to spread data over threads.
///
/// It gives no right. No other thread has an index below [`OWNED`] at the same time, but the next call may
/// return another one: while a thread ends, it has a shared slot.
#[inline(always)]
#[must_use]
pub fn index() -> usize {
    current().index()
}

/// No slot: the thread has not called [`current`] yet.
const UNSET: usize = usize::MAX;

/// Bit `i` is set while a live thread has number `i`.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // `SLOT` has no destructor, so it stays readable during the whole thread exit.
    static SLOT: Cell<usize> = const { Cell::new(UNSET) };
    static ON_EXIT: ReleaseOnExit = const { ReleaseOnExit };
}

/// Releases the thread's number when the thread ends.
struct ReleaseOnExit;

impl Drop for ReleaseOnExit {
    fn drop(&mut self) {
        // From here on the thread uses a shared slot: other destructors may still free blocks.
        let slot = SLOT.replace(OWNED);
        let number = slot % OWNED;
        TAKEN.fetch_and(!(1 << number), Ordering::Release);
    }
}

/// Returns the calling thread's slot, and assigns one at the first call.
#[inline(always)]
pub(crate) fn current() -> ThreadSlot {
    let slot = known();
    let index = if slot == UNSET { assign() } else { slot };
    ThreadSlot { index, thread: PhantomData }
}

/// Returns the index of the calling thread's slot, or [`UNSET`].
#[cfg(not(loom))]
#[inline(always)]
fn known() -> usize {
    SLOT.get()
}

#[cfg(loom)]
use self::modelled::number as known;
#[cfg(loom)]
#[doc(hidden)]
pub use self::modelled::set_index;

/// Slots of a model's threads, which are not threads of the system: numbered by first use, and never
/// released.
#[cfg(loom)]
mod modelled {
    use super::{SLOTS, UNSET};
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::cell::Cell;

    loom::lazy_static! {
        static ref NEXT: AtomicUsize = AtomicUsize::new(0);
    }
    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(UNSET);
    }

    pub(super) fn number() -> usize {
        NUMBER.with(|number| {
            if number.get() == UNSET {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed).min(SLOTS - 1));
            }
            number.get()
        })
    }

    /// Gives slot `index` to the calling thread.
    ///
    /// # Safety
    ///
    /// 1. `index` is below [`SLOTS`].
    /// 2. If it is below [`OWNED`](super::OWNED), no other thread of the model uses the slot at the same
    ///    time.
    pub unsafe fn set_index(index: usize) {
        NUMBER.with(|number| number.set(index));
    }
}

/// Returns the index of the calling thread's slot if it was assigned before.
#[cfg(not(loom))]
pub(crate) fn known_index() -> Option<usize> {
    let index = known();
    (index != UNSET).then_some(index)
}

/// Frees the numbers that are neither this thread's nor in `kept`, which has bit `i` set for number `i`.
///
/// # Safety
///
/// This is the child of a `fork`, where the calling thread is the only one, and no thread that does not exist
/// here was inside a slot of a number that is freed.
#[cfg(not(loom))]
pub(crate) unsafe fn keep_numbers(kept: u32) {
    // A shared slot has the number of an owned one, or needs none: then this keeps one too many.
    let own = known_index().map_or(0, |index| 1 << (index % OWNED));
    TAKEN.fetch_and(kept | own, Ordering::Relaxed);
}

/// Returns the calling thread's slot if it was assigned before and is an owned one.
#[inline(always)]
pub(crate) fn owned() -> Option<ThreadSlot> {
    let index = known();
    (index < OWNED).then_some(ThreadSlot { index, thread: PhantomData })
}

#[cold]
fn assign() -> usize {
    let slot = take_number();
    SLOT.set(slot);
    slot
}

fn take_number() -> usize {
    let mut taken = TAKEN.load(Ordering::Relaxed);
    loop {
        let free = taken.trailing_ones() as usize;
        if free >= OWNED {
            // All numbers are taken: share a slot, chosen by the address of this thread's stack. It is never
            // released.
            let spread = (&raw const taken).addr() >> 12;
            return OWNED + spread % OWNED;
        }
        match TAKEN.compare_exchange_weak(taken, taken | (1 << free), Ordering::Acquire, Ordering::Relaxed) {
            // Registering the destructor fails only while the thread is already ending.
            Ok(_) if ON_EXIT.try_with(|_| ()).is_err() => {
                TAKEN.fetch_and(!(1 << free), Ordering::Release);
                return OWNED;
            }
            // Without the fence a thread gets the shared slot of its number, behind an ordinary lock.
            Ok(_) => return if asymmetric() { free } else { OWNED + free },
            Err(now) => taken = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_slot_and_releases_it_at_its_end() {
        let own = current();
        assert_eq!(own, current());
        // More threads than slots, one after the other: each gets a number.
        for _ in 0..if cfg!(miri) { 2 } else { 4 * SLOTS } {
            let other = std::thread::spawn(|| current().index()).join().unwrap();
            assert_ne!(own.index(), other);
        }
    }
}
