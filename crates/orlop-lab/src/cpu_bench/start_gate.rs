//! The start gate: a barrier for the worker threads of a replay.
//!
//! `std::sync::Barrier` is unsuitable for two reasons. A pass may take microseconds, less than waking a
//! sleeping thread: threads that wait here spin, so that all start at the same time. And a thread that panics
//! would block the others forever: here its guard abandons the gate.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// The number of spins before the thread yields.
const MAX_SPINS: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct StartGate {
    members: usize,
    arrived: AtomicUsize,
    /// The number of times the gate has opened.
    openings: AtomicUsize,
    abandoned: AtomicBool,
}

/// A thread left without reaching the gate: the replay cannot continue.
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

    /// Waits for all members. Everything they did before happens before everything after.
    pub(super) fn meet(&self) -> Result<(), Abandoned> {
        let before = self.openings.load(Ordering::Relaxed);
        // AcqRel: the last to arrive acquires what the others released, and publishes it below.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the acquire below. No thread arrives again before it sees the reset.
            self.openings.store(before.wrapping_add(1), Ordering::Release);
        }
        let mut spins = 0_usize;
        while self.openings.load(Ordering::Acquire) == before {
            // Relaxed: nothing is read because of it.
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(Abandoned);
            }
            spins += 1;
            if spins < MAX_SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Returns `true` if a thread left without reaching the gate.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Registers a thread. Dropping the guard abandons the gate, unless [`GateMember::done`] was called.
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
    fn the_gate_opens_when_all_have_arrived() {
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
    fn an_abandoned_gate_releases_the_others() {
        let gate = StartGate::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.meet());
            drop(gate.member());
            assert_eq!(waiting.join().unwrap(), Err(Abandoned));
        });
    }
}
