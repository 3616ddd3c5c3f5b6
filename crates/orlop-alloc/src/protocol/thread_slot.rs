//! Which slot a thread prefers.
//!
//! Small numbers, given out lowest first and taken back when a thread ends, so that a program with eight
//! threads uses eight slots however many threads came and went. Threads past [`SLOTS`] share: slower, not
//! wrong, because a slot is a lock (see [`Slots`](super::Slots)).
//!
//! Nothing here allocates, and [`current`] works during thread exit: after the number has been given back a
//! thread borrows slot 0.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots that allocators make by default.
pub const SLOTS: usize = 32;

const UNSET: usize = usize::MAX;

/// Bit `i` is set while some live thread owns number `i`.
static OWNED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Neither needs a destructor of its own to be read: `SLOT` stays readable during the whole exit.
    static SLOT: Cell<usize> = const { Cell::new(UNSET) };
    static RETURN: GiveBack = const { GiveBack };
}

struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        let slot = SLOT.replace(0);
        if slot < SLOTS {
            // Relaxed: the number guards nothing. Whoever gets it next synchronises through the slot's lock.
            OWNED.fetch_and(!(1 << slot), Ordering::Relaxed);
        }
    }
}

/// The calling thread's slot number: below [`SLOTS`] if it owns one, else one that [`Slots`](super::Slots) reduces.
#[inline]
pub fn current() -> usize {
    let slot = SLOT.get();
    if slot == UNSET { assign() } else { slot }
}

#[cold]
fn assign() -> usize {
    // Registering the destructor fails only while the thread is already exiting.
    if RETURN.try_with(|_| ()).is_err() {
        SLOT.set(0);
        return 0;
    }
    let mut owned = OWNED.load(Ordering::Relaxed);
    let slot = loop {
        let free = owned.trailing_ones();
        let Some(bit) = 1u64.checked_shl(free).filter(|_| (free as usize) < SLOTS) else {
            // All are owned: share one, chosen by where this thread's data lies. Never given back.
            let spread = (&raw const owned).addr() >> 12;
            break SLOTS + spread % SLOTS;
        };
        match OWNED.compare_exchange_weak(owned, owned | bit, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break free as usize,
            Err(now) => owned = now,
        }
    };
    SLOT.set(slot);
    slot
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
            let theirs = std::thread::spawn(current).join().unwrap();
            assert_ne!(mine, theirs);
        }
    }
}
