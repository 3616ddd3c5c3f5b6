//! Which slot a thread uses.
//!
//! Small numbers, given out lowest first and taken back when a thread ends, so that a program with eight
//! threads uses eight slots however many threads came and went. The first [`OWNED`] slots have one thread
//! each, which [`Slots`](super::Slots) relies on; the others are shared by threads that found none free, by
//! threads that are ending, and by all threads where the system has no asymmetric fence.
//!
//! Nothing here allocates, and [`current`] works during thread exit.
//!
//! # Ordering
//!
//! Giving a number back and taking it are release and acquire: the next owner of a slot sees what the one
//! before left in it.

use crate::primitives::fence::asymmetric;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots that one thread has for itself. Few under checkers, which look at each.
pub const OWNED: usize = if cfg!(loom) {
    2
} else if cfg!(miri) {
    4
} else {
    32
};

/// All slots: as many again are shared.
pub const SLOTS: usize = 2 * OWNED;

/// The right to use a slot: from [`current`], for the thread that asked, until it asks again or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    index: usize,
    /// Tied to its thread.
    thread: PhantomData<*const ()>,
}

impl Seat {
    /// The seat of slot `index`.
    ///
    /// # Safety
    ///
    /// `index` is below [`SLOTS`]. If it is below [`OWNED`], no other thread has this seat until this one gave it
    /// up in a way that the next one sees.
    #[must_use]
    pub const unsafe fn new(index: usize) -> Self {
        Self { index, thread: PhantomData }
    }

    /// The slot's number.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.index
    }
}

/// Not a slot: the thread has not asked yet.
const UNSET: usize = usize::MAX;

/// Bit `i` is set while some live thread has number `i`.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Neither needs a destructor of its own to be read: `SLOT` stays readable during the whole exit.
    static SLOT: Cell<usize> = const { Cell::new(UNSET) };
    static RETURN: GiveBack = const { GiveBack };
}

struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        // From here on the thread shares a slot: other destructors may still free.
        let slot = SLOT.replace(OWNED);
        let number = slot % OWNED;
        TAKEN.fetch_and(!(1 << number), Ordering::Release);
    }
}

/// The calling thread's seat.
#[inline(always)]
#[must_use]
pub fn current() -> Seat {
    let slot = known();
    let index = if slot == UNSET { assign() } else { slot };
    Seat { index, thread: PhantomData }
}

/// The calling thread's slot, if it has asked for one before.
#[cfg(not(loom))]
#[inline(always)]
fn known() -> usize {
    SLOT.get()
}

#[cfg(loom)]
use self::modelled::number as known;

/// Threads of a model are not the system's: they are counted as they ask, and numbers do not come back.
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
}

/// The calling thread's seat, if it has one already and owns the slot.
#[inline(always)]
#[must_use]
pub fn owned() -> Option<Seat> {
    let index = known();
    (index < OWNED).then_some(Seat { index, thread: PhantomData })
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
            // All are taken: share one, chosen by where this thread's data lies. Never given back.
            let spread = (&raw const taken).addr() >> 12;
            return OWNED + spread % OWNED;
        }
        match TAKEN.compare_exchange_weak(taken, taken | (1 << free), Ordering::Acquire, Ordering::Relaxed) {
            // Registering the destructor fails only while the thread is already ending.
            Ok(_) if RETURN.try_with(|_| ()).is_err() => {
                TAKEN.fetch_and(!(1 << free), Ordering::Release);
                return OWNED;
            }
            // Without the fence a thread has a slot of its own all the same, behind an ordinary lock.
            Ok(_) => return if asymmetric() { free } else { OWNED + free },
            Err(now) => taken = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_slot_and_gives_it_back() {
        let mine = current();
        assert_eq!(mine, current());
        // Far more threads than slots, one after the other: each finds a number, none runs out.
        for _ in 0..if cfg!(miri) { 2 } else { 4 * SLOTS } {
            let theirs = std::thread::spawn(|| current().index()).join().unwrap();
            assert_ne!(mine.index(), theirs);
        }
    }
}
