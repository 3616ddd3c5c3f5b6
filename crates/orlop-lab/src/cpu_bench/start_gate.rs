//! The start gate: where the worker threads of a replay meet.
//!
//! Not `std::sync::Barrier`, for two reasons. A pass may take microseconds, less than it takes to wake a
//! sleeping thread: those who wait here stay awake, so that all start at once. And a thread that panics would
//! leave the others waiting for ever: here its guard opens the gate for good.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Looks at the gate that often before the processor is offered to others.
const SPINS: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct StartGate {
    members: usize,
    arrived: AtomicUsize,
    /// How often the gate opened.
    openings: AtomicUsize,
    abandoned: AtomicBool,
}

/// Somebody left for good: the replay cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abandoned;

impl StartGate {
    pub(super) fn new(members: usize) -> Self {
        Self {
            members,
            arrived: AtomicUsize::new(0),
            openings: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Waits until all members are here. What each did before is seen by all after.
    pub(super) fn meet(&self) -> Result<(), Abandoned> {
        let before = self.openings.load(Ordering::Relaxed);
        // AcqRel: the last to arrive sees what the others did (their release), and passes it on below.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the acquire below; also nobody arrives anew before the reset is seen.
            self.openings.store(before.wrapping_add(1), Ordering::Release);
        }
        let mut looks = 0_usize;
        while self.openings.load(Ordering::Acquire) == before {
            // Relaxed: nothing is read because of it.
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(Abandoned);
            }
            looks += 1;
            if looks < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Whether somebody left for good.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Opens the gate for good when the guard is dropped, unless [`GateMember::done`] was called.
    pub(super) fn member(&self) -> GateMember<'_> {
        GateMember { gate: self, done: false }
    }
}

/// A thread's membership of a gate.
pub(super) struct GateMember<'a> {
    gate: &'a StartGate,
    done: bool,
}

impl GateMember<'_> {
    /// Leaves after the last meeting.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for GateMember<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.gate.abandoned.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_all_are_there() {
        let (gate, count) = (StartGate::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        count.fetch_add(1, Ordering::Relaxed);
                        gate.meet().unwrap();
                        assert_eq!(count.load(Ordering::Relaxed), 3 * round);
                        gate.meet().unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn who_leaves_for_good_lets_the_others_go() {
        let gate = StartGate::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.meet());
            drop(gate.member());
            assert_eq!(waiting.join().unwrap(), Err(Abandoned));
        });
    }
}
