//! Requests and frees of a program, and what must hold for their blocks.

use super::DeviceProgram;
use crate::device::WatchedDevice;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_core::StreamId;
use orlop_device::{BackingError, DeviceBlock, DeviceError, DeviceRequest, Growth};

#[derive(Debug)]
pub(super) struct ProgramBlock {
    pub(super) block: DeviceBlock,
    pub(super) address: usize,
    pub(super) bytes: usize,
    /// The stream of the allocation, and the recorded ones.
    pub(super) streams: Vec<StreamId>,
}

impl<B: WatchedDevice> DeviceProgram<B> {
    fn bytes(&mut self) -> usize {
        let random = &mut self.random;
        1 + match (self.sizes, random.below(4)) {
            (0, _) => random.below(4096),
            (1, _) | (_, 1) => random.below(1 << 20),
            (_, 0) => random.below(1 << 14),
            (_, 2) => random.below(12 << 20),
            (2, _) => random.below(100 << 20),
            _ => random.below(40) << 20,
        }
    }

    pub(super) fn allocate(&mut self) -> Result<(), ConformanceFault> {
        let requested = self.bytes();
        let stream = self.any_stream();
        let mut request = DeviceRequest::new(requested, stream);
        request.long_lived = self.random.one_in(8);
        let loss = self.engine.loss();
        let block = match self.engine.allocate(request) {
            Ok(_) if loss.is_some() => return rule("a lost device serves no request", false),
            Ok(block) => block,
            Err(error) if loss.is_some() => return rule("a request says why", loss == Some(error)),
            Err(error) => return self.check_refusal(requested, error),
        };
        let (address, bytes) = (self.engine.address(block), self.engine.size(block));
        if bytes < requested {
            return Err(ConformanceFault::Short { requested, granted: bytes });
        }
        let (start, end) = (address, address + bytes);
        if let Some((&other_start, &other_end)) = self.ends.range(..end).next_back()
            && other_end > start
        {
            return Err(ConformanceFault::Overlap { start, end, other_start, other_end });
        }
        self.ends.insert(start, end);
        self.engine.backing().begin_use(address, bytes, stream);
        self.live.push(ProgramBlock { block, address, bytes, streams: vec![stream] });
        Ok(())
    }

    /// Checks that a policy that searches again after a wait refuses a request only if nothing fits: neither
    /// a free chunk nor, together, the free pages and the rest of the device.
    fn check_refusal(&self, requested: usize, error: DeviceError) -> Result<(), ConformanceFault> {
        let device = self.engine.backing();
        if let DeviceError::Backing { error, .. } = error
            && !device.never_fails()
        {
            // What a capture forbids is no failure.
            let is_known = error == BackingError::Capturing || self.engine.last_failure().is_some();
            return rule("an engine knows its last failed call", is_known);
        }
        if error == DeviceError::DuringCapture {
            return rule("only during a capture no stream waits", self.captures > 0);
        }
        let DeviceError::OutOfMemory { rounded, limit, reserved, pending, .. } = error else {
            return Err(error.into());
        };
        let policy = self.engine.policy();
        let is_limited = limit < device.memory() || !device.never_fails();
        if is_limited || !self.routes.is_empty() || self.captures > 0 || !policy.extensions.search_after_wait
        {
            return Ok(());
        }
        equal("pending bytes after a wait", 0, pending)?;
        rule("a request is served while a free chunk fits", self.engine.largest_fit() < rounded)?;
        let Growth::Pages { small, large, .. } = policy.growth else { return Ok(()) };
        let left = limit - reserved + self.engine.whole_free_pages();
        let page = if requested > policy.small_limit { large } else { small };
        rule("a request is served while free pages suffice", left < rounded + page as u64)
    }

    pub(super) fn free(&mut self, which: usize) -> Result<(), ConformanceFault> {
        let ProgramBlock { block, address, bytes, streams } = self.live.swap_remove(which);
        let is_where_it_was = (self.engine.address(block), self.engine.size(block)) == (address, bytes);
        rule("blocks do not move", is_where_it_was)?;
        self.ends.remove(&address);
        for stream in streams {
            self.engine.backing().go_on(address, bytes, stream);
        }
        self.engine.free(block)?;
        rule("a block is freed only once", !self.random.one_in(50) || self.engine.free(block).is_err())
    }
}
