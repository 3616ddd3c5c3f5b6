//! Failed calls of the device, and what they do to the request that needed them.
//!
//! A request whose memory could not be allocated because a call failed ends with that failure: to make room
//! does not help. All other calls serve to make room, to reuse memory or to find that it is free; without
//! them there is less memory, and the request goes on. If it finds none, it ends with the first failure, not
//! with out of memory, whose figures would not say why.

use super::Engine;
use crate::DeviceError;
use crate::backing::{BackingError, CallFailure, DeviceBacking};

/// The failed calls of an engine.
#[derive(Debug, Default)]
pub(crate) struct CallFailures {
    last: Option<CallFailure>,
    /// The first one since the request, or the release, began.
    first: Option<CallFailure>,
    /// Whether memory could not be allocated because a call failed.
    is_final: bool,
    /// Whether the policy refused to grow, which also ends the request.
    pub(crate) is_refused: bool,
    /// Whether the last request that found no memory was counted.
    pub(crate) is_counted: bool,
    /// Whether no addresses were left.
    pub(crate) lacks_addresses: bool,
    /// Whether the slow path is in a call, with the engine unlocked: what fails meanwhile are calls of other
    /// threads, for other requests.
    pub(crate) are_others: bool,
}

impl CallFailures {
    /// Begins a request, or a release of memory.
    pub(crate) fn begin(&mut self) {
        (self.first, self.is_final, self.is_refused, self.lacks_addresses) = (None, false, false, false);
    }

    /// Returns the first failure since the beginning.
    pub(crate) fn first(&self) -> Option<CallFailure> {
        self.first
    }

    /// Returns `true` if the request has to end.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final || self.is_refused
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Returns the last failed call of the device. That there is no memory, or no such call, is no failure.
    #[must_use]
    pub fn last_failure(&self) -> Option<DeviceError> {
        self.failures.last.map(DeviceError::from)
    }

    /// Returns the failure by which the device was lost. Then every request fails with it; blocks can be
    /// freed, and nothing is reused or released any more.
    #[must_use]
    pub fn loss(&self) -> Option<DeviceError> {
        self.backing.loss().map(DeviceError::from)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.backing.loss().is_some()
    }

    /// Returns the result of a call, and notes a failure.
    #[inline]
    pub(crate) fn noted<R>(&mut self, result: Result<R, CallFailure>) -> Result<R, BackingError> {
        result.map_err(|failure| {
            self.note_failure(failure);
            failure.error
        })
    }

    /// Returns the result of a call that allocates memory or addresses. A failure other than want of memory
    /// ends the request.
    pub(crate) fn allocated<R>(&mut self, result: Result<R, CallFailure>) -> Option<R> {
        match self.noted(result) {
            Ok(value) => Some(value),
            Err(error) => {
                self.failures.is_final |= error != BackingError::OutOfMemory;
                None
            }
        }
    }

    #[cold]
    fn note_failure(&mut self, failure: CallFailure) {
        if failure.error.is_answer() {
            return;
        }
        if !self.failures.are_others {
            self.failures.first.get_or_insert(failure);
        }
        // What a capture forbids is done after it.
        if failure.error == BackingError::Capturing {
            return;
        }
        // Once the device is lost, calls are not made.
        if !self.failures.last.is_some_and(|last| last.is_loss()) {
            self.failures.last = Some(failure);
            self.stats.num_failed_calls += 1;
        }
    }
}
