//! Injected failures and panics of a mock device.

use super::random::Random;
use orlop_device::{BackingError, DriverFailure};

/// A call that can fail at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCall {
    /// `allocate`: there is no memory.
    Allocate,
    /// `reserve_addresses`: there are no addresses.
    Reserve,
    /// `map`: there is no memory.
    Map,
    /// `remap`: it fails, and half of the pages lose their contents.
    Remap,
    /// `zero`: it is not supported.
    Zero,
    /// `query`: the event is not complete yet.
    Query,
}

const CALLS: usize = 6;

/// An error of the driver that a mock device invents.
pub const INJECTED: DriverFailure = DriverFailure { call: "mock", code: 999, name: "MOCK_ERROR_INJECTED" };

#[derive(Debug)]
pub(super) struct InjectedFailures {
    random: Random,
    /// For each call: one in this number fails; 0 for none.
    one_in: [usize; CALLS],
    /// One call in this number panics; 0 for none.
    panics_one_in: usize,
    /// The number of calls so far.
    calls: u64,
    /// The number of a call that fails, and its error.
    nth: Option<(u64, BackingError)>,
    /// The error of all calls, once one has lost the device.
    loss: Option<BackingError>,
}

impl InjectedFailures {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            one_in: [0; CALLS],
            panics_one_in: 0,
            calls: 0,
            nth: None,
            loss: None,
        }
    }

    pub(super) fn one_in(&mut self, call: DeviceCall, n: usize) {
        self.one_in[call as usize] = n;
    }

    pub(super) fn panic_one_in(&mut self, n: usize) {
        self.panics_one_in = n;
    }

    pub(super) fn nth(&mut self, n: u64, error: BackingError) {
        self.nth = Some((self.calls + n, error));
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn is_lost(&self) -> bool {
        self.loss.is_some()
    }

    /// Counts a call, and returns the error with which it fails.
    pub(super) fn next(&mut self) -> Option<BackingError> {
        self.calls += 1;
        if self.loss.is_some() {
            return self.loss;
        }
        let is_nth = |&(n, _): &(u64, BackingError)| n == self.calls;
        let error = self.nth.filter(is_nth).map(|(_, error)| error);
        let error =
            error.or_else(|| self.random.one_in(self.panics_one_in).then_some(BackingError::Panicked));
        if let Some(error @ BackingError::Lost(_)) = error {
            self.loss = Some(error);
        }
        error
    }

    /// Returns `true` if this call fails at random.
    pub(super) fn fails(&mut self, call: DeviceCall) -> bool {
        self.random.one_in(self.one_in[call as usize])
    }

    /// Returns `true` with probability one half.
    pub(super) fn toss(&mut self) -> bool {
        self.random.one_in(2)
    }
}
