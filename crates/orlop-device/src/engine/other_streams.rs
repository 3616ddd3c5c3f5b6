//! Memory that other streams may still use.
//!
//! A block that was freed in one stream may still be in use there. Another stream can have its memory if it
//! waits, on the device, for all work that the first was given so far. The host does not wait.
//!
//! PyTorch's allocator does not do this: memory stays with the stream of its first request.

use super::chunks::Index;
use super::{Engine, PoolRequest};
use crate::DeviceError;
use crate::backing::DeviceBacking;

impl<B: DeviceBacking> Engine<B> {
    /// Takes the best fitting chunk that only other streams may still use: a free chunk of another stream, or
    /// a pending block, unless it is the only one that fits. The request's stream waits for these streams.
    pub(crate) fn steal(&mut self, request: &PoolRequest) -> Option<Index> {
        self.steal_but(request, 1)
    }

    /// [`steal`](Self::steal), which leaves `left` of the pending blocks that fit.
    pub(crate) fn steal_but(&mut self, request: &PoolRequest, left: usize) -> Option<Index> {
        if self.is_capturing() {
            return None;
        }
        let free = self.free_elsewhere(request);
        let size = |chunk: Index| self.chunks[chunk].size;
        if let Some(pending) = self.pending_fit(request, left)
            && free.is_none_or(|free| size(pending) < size(free))
            && let Some(taken) = self.take_pending(request, pending)
        {
            return Some(taken);
        }
        let chunk = free?;
        if !self.wait_for(request.stream, self.chunks[chunk].stream) {
            return None;
        }
        self.take(chunk);
        self.stats.num_stream_steals += 1;
        Some(chunk)
    }

    /// Finds the best fitting free chunk of other streams.
    fn free_elsewhere(&self, request: &PoolRequest) -> Option<Index> {
        let pool = &self.pools[request.pool as usize];
        let others = pool.streams().filter(|&(stream, of)| stream != request.stream && !of.free.is_empty());
        let found = others.filter_map(|(_, of)| self.fit_of(of, request));
        found.min_by_key(|&chunk| (self.chunks[chunk].size, self.chunks[chunk].address))
    }

    /// Makes a stream wait, on the device, for all work that another was given so far. Returns `false` if it
    /// does not: memory of the other stream is not for it then. It does not during a capture: a wait would
    /// draw a stream into it, or end it.
    #[must_use]
    pub(crate) fn wait_for(&mut self, stream: u32, other: u32) -> bool {
        self.try_wait_for(stream, other).is_ok()
    }

    /// [`wait_for`](Self::wait_for), with the error. It does not use the failures of a request: it is also
    /// called while another thread's request is on the slow path.
    pub(crate) fn try_wait_for(&mut self, stream: u32, other: u32) -> Result<(), DeviceError> {
        if self.is_capturing() {
            return Err(DeviceError::DuringCapture);
        }
        let waits = self.backing.wait_for(self.streams.id(stream), self.streams.id(other));
        let _noted = self.noted(waits);
        self.stats.num_stream_waits += u64::from(waits.is_ok());
        Ok(waits?)
    }
}
