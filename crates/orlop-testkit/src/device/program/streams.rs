//! Streams of a program, which end and are replaced, and captures.

use super::DeviceProgram;
use crate::device::WatchedDevice;
use crate::fault::{ConformanceFault, rule};
use orlop_core::{Device, StreamId};
use orlop_device::DeviceError;

/// A stream of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramStream {
    pub(super) id: StreamId,
    /// The number of streams that were in its place before.
    pub(super) generation: u64,
    pub(super) is_foreign: bool,
}

impl ProgramStream {
    /// Creates the default stream, or another one whose id is as large as a handle.
    pub(super) fn new(place: usize, generation: u64) -> Self {
        let id = match place {
            0 => StreamId::default_of(Device::cuda(0)),
            _ => StreamId::from_raw(0x1000 + 0x10 * place as u64 + (generation << 32)),
        };
        Self { id, generation, is_foreign: false }
    }
}

impl<B: WatchedDevice> DeviceProgram<B> {
    pub(super) fn any_stream(&mut self) -> StreamId {
        self.streams[self.random.below(self.streams.len())].id
    }

    /// Destroys a stream, other than the default stream, and creates another in its place: after it was
    /// retired, or a foreign one when no block is for it.
    pub(super) fn end_stream(&mut self) -> Result<(), ConformanceFault> {
        let place = self.random.below(self.streams.len());
        let ProgramStream { id, generation, is_foreign } = self.streams[place];
        let is_used = self.live.iter().any(|block| block.streams.contains(&id));
        if place == 0 || is_foreign && (is_used || self.captures > 0 || self.engine.last_failure().is_some())
        {
            return Ok(());
        }
        if !is_foreign {
            match self.engine.retire_stream(id) {
                Err(DeviceError::DuringCapture) if self.captures > 0 => return Ok(()),
                Err(error) => return self.check_failure::<()>(Err(error)),
                Ok(()) => {}
            }
            for block in &mut self.live {
                block.streams.retain(|&stream| stream != id);
            }
        }
        self.engine.backing().end_stream(id);
        self.streams[place] = ProgramStream::new(place, generation + 1);
        Ok(())
    }

    pub(super) fn adopt_stream(&mut self) -> Result<(), ConformanceFault> {
        let place = self.random.below(self.streams.len());
        if place == 0 || self.captures > 0 {
            return Ok(());
        }
        let adopted = self.engine.adopt_foreign_stream(self.streams[place].id);
        self.streams[place].is_foreign |= adopted.is_ok();
        self.check_failure(adopted)
    }

    pub(super) fn begin_capture(&mut self) {
        self.engine.mark_capture_begin();
        self.captures += 1;
        self.engine.backing().set_capturing(true);
    }

    pub(super) fn end_capture(&mut self) -> Result<(), ConformanceFault> {
        let Some(left) = self.captures.checked_sub(1) else {
            return rule("only a capture can end", self.engine.mark_capture_end().is_err());
        };
        self.captures = left;
        self.engine.backing().set_capturing(left > 0);
        Ok(self.engine.mark_capture_end()?)
    }
}
