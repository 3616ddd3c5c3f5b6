//! Injected failures and panics of a mock device.

use super::random::Random;

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCall {
    /// `allocate`.
    Allocate,
    /// `reserve_addresses`.
    Reserve,
    /// `map`.
    Map,
    /// `remap`.
    Remap,
    /// `zero`.
    Zero,
    /// `is_done`: the event is not done yet.
    IsDone,
}

const CALLS: usize = 6;

#[derive(Debug)]
pub(super) struct InjectedFailures {
    random: Random,
    /// For each call: one in this number fails; 0 for none.
    one_in: [usize; CALLS],
    /// One call in this number panics; 0 for none.
    panics_one_in: usize,
}

impl InjectedFailures {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), one_in: [0; CALLS], panics_one_in: 0 }
    }

    pub(super) fn one_in(&mut self, call: DeviceCall, n: usize) {
        self.one_in[call as usize] = n;
    }

    pub(super) fn panic_one_in(&mut self, n: usize) {
        self.panics_one_in = n;
    }

    /// Returns `true` if this call panics.
    pub(super) fn panics(&mut self) -> bool {
        self.random.one_in(self.panics_one_in)
    }

    /// Returns `true` if this call fails.
    pub(super) fn fails(&mut self, call: DeviceCall) -> bool {
        self.random.one_in(self.one_in[call as usize])
    }

    /// Returns `true` with probability one half.
    pub(super) fn toss(&mut self) -> bool {
        self.random.one_in(2)
    }
}
