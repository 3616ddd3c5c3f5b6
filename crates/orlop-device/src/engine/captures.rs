//! Captures of graphs, in which some calls of the device are illegal: events can be neither queried nor
//! waited for, and memory cannot be released.
//!
//! A capture is marked for the whole engine. Under orlop's policies every call then keeps to its rules
//! ([`Extensions::quiet_captures`](crate::Extensions::quiet_captures)). Under PyTorch's only those do that
//! are made for a stream that captures; the device is asked which those are.

use super::Engine;
use super::chunks::Index;
use crate::DeviceError;
use crate::backing::DeviceBacking;

impl<B: DeviceBacking> Engine<B> {
    /// Marks the begin of a capture (PyTorch: `markCaptureBegin`). Until its end no event is recorded or
    /// queried, no stream waits for another or is waited for, and no memory is released or moved, by the
    /// policy for all streams or for those that capture. Captures may overlap.
    pub fn mark_capture_begin(&mut self) {
        self.captures = self.captures.saturating_add(1);
    }

    /// Marks the end of a capture, after it has ended: the events of blocks that were freed meanwhile are
    /// recorded.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoCapture`] if there is none.
    pub fn mark_capture_end(&mut self) -> Result<(), DeviceError> {
        self.captures = self.captures.checked_sub(1).ok_or(DeviceError::NoCapture)?;
        if self.captures == 0 {
            // Foreign streams may end now.
            self.retry_events();
        }
        Ok(())
    }

    /// Returns the number of captures in progress.
    pub(crate) fn captures(&self) -> u32 {
        self.captures
    }

    /// Returns `true` if a call for a stream keeps to the rules of a capture.
    #[inline(always)]
    pub(crate) fn is_captured(&self, stream: u32) -> bool {
        self.captures > 0 && self.may_capture(stream)
    }

    /// Returns `true` if a call for all streams keeps to the rules of a capture.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures > 0
            && (self.policy.extensions.quiet_captures
                || self.streams.existing().any(|stream| self.backing.is_capturing(stream)))
    }

    /// Returns `true` if the free of a block keeps to the rules of a capture: for its stream, or for another
    /// that uses it.
    pub(crate) fn is_free_captured(&self, block: Index) -> bool {
        self.captures > 0
            && (self.may_capture(self.chunks[block].stream)
                || self.users(block).any(|user| self.may_capture(user)))
    }

    #[cold]
    fn may_capture(&self, stream: u32) -> bool {
        self.policy.extensions.quiet_captures || self.backing.is_capturing(self.streams.id(stream))
    }
}
