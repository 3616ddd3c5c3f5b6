//! Captures of graphs, in which some calls of the device are illegal: events can be neither queried nor
//! waited for, and memory cannot be released.
//!
//! A capture is marked for the whole engine. Under orlop's policies every call then keeps to its rules
//! ([`Extensions::quiet_captures`](crate::Extensions::quiet_captures)). Under PyTorch's only those do that
//! are made for a stream that captures; the device is asked which those are.

use super::Engine;
use super::chunks::Index;
use crate::DeviceError;
use crate::backing::{CaptureCount, DeviceBacking};

/// The captures that an engine knows of.
#[derive(Debug, Default)]
pub(crate) struct MarkedCaptures {
    /// Those that are marked at this engine.
    of_engine: u32,
    /// Those that are noted at the device, for all its engines.
    of_device: CaptureCount,
}

impl MarkedCaptures {
    /// Creates the captures of an engine on a device with this count of captures.
    pub(crate) fn new(of_device: Option<CaptureCount>) -> Self {
        Self { of_engine: 0, of_device: of_device.unwrap_or_default() }
    }

    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any_of_engine() || self.of_device.is_capturing()
    }

    /// Returns `true` if a capture is marked at this engine.
    #[inline(always)]
    pub(crate) fn is_any_of_engine(&self) -> bool {
        self.of_engine > 0
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Marks the begin of a capture (PyTorch: `markCaptureBegin`). Until its end no event is recorded or
    /// queried, no stream waits for another or is waited for, and no memory is released or moved, by the
    /// policy for all streams or for those that capture. Captures may overlap.
    pub fn mark_capture_begin(&mut self) {
        self.captures.of_engine = self.captures.of_engine.saturating_add(1);
    }

    /// Marks the end of a capture, after it has ended: the events of blocks that were freed meanwhile are
    /// recorded.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoCapture`] if there is none.
    pub fn mark_capture_end(&mut self) -> Result<(), DeviceError> {
        let left = self.captures.of_engine.checked_sub(1);
        self.captures.of_engine = left.ok_or(DeviceError::NoCapture)?;
        if !self.captures.is_any() {
            // Foreign streams may end now.
            self.retry_events();
        }
        Ok(())
    }

    /// Returns the count of captures of the device.
    pub(crate) fn device_captures(&self) -> CaptureCount {
        self.captures.of_device.clone()
    }

    /// Returns `true` if a call for a stream keeps to the rules of a capture.
    #[inline(always)]
    pub(crate) fn is_captured(&self, stream: u32) -> bool {
        self.captures.is_any() && self.may_capture(stream)
    }

    /// Returns `true` if a call for all streams keeps to the rules of a capture.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.is_any()
            && (self.policy.extensions.quiet_captures
                || self.streams.existing().any(|stream| self.backing.is_capturing(stream)))
    }

    /// Returns `true` if the free of a block keeps to the rules of a capture: for its stream, or for another
    /// that uses it.
    pub(crate) fn is_free_captured(&self, block: Index) -> bool {
        self.captures.is_any()
            && (self.may_capture(self.chunks[block].stream)
                || self.users(block).any(|user| self.may_capture(user)))
    }

    #[cold]
    fn may_capture(&self, stream: u32) -> bool {
        self.policy.extensions.quiet_captures || self.backing.is_capturing(self.streams.id(stream))
    }
}
