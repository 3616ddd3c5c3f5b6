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
use orlop_core::Device;

impl<B: DeviceBacking> Engine<B> {
    /// Takes the best fitting chunk that only other streams may still use: a free chunk of another stream, or
    /// a pending block, unless it is the only one that fits. The request's stream waits for these streams.
    pub(crate) fn steal(&mut self, request: &PoolRequest) -> Option<Index> {
        self.steal_but(request, 1)
    }

    /// [`steal`](Self::steal), which leaves so many of the pending blocks that fit.
    pub(crate) fn steal_but(&mut self, request: &PoolRequest, left: usize) -> Option<Index> {
        if self.is_capturing() {
            return None;
        }
        let free = self.free_elsewhere(request);
        let size = |chunk: Index| self.chunks[chunk].size;
        if let Some(pending) = self.pending_fit(request, left)
            && free.is_none_or(|free| size(pending) < size(free))
        {
            return self.take_pending(request, pending);
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

    /// Finds the best fitting pending block, of several the oldest, if more than `left` fit: where the host has
    /// run ahead by one block only, the request gets other memory, so that streams work at the same time.
    fn pending_fit(&self, request: &PoolRequest, left: usize) -> Option<Index> {
        // The host cannot be made to wait for an event on the device.
        if !self.policy.extensions.limit_run_ahead || self.backing.device() == Device::CPU {
            return None;
        }
        let mut found: Vec<Index> = Vec::new();
        for chunk in self.oldest_pending() {
            let of = &self.chunks[chunk];
            let serves = of.pool == request.pool && self.policy.serves(of.size, request.size);
            if serves && !self.is_wasteful(of, request) && !found.contains(&chunk) {
                found.push(chunk);
            }
        }
        let best = found.iter().copied().min_by_key(|&chunk| self.chunks[chunk].size);
        best.filter(|_| found.len() > left)
    }

    /// Takes a pending block: the request's stream waits for what others did with it, and for its own stream.
    /// All of it is then memory of the request's stream, because no other has waited.
    fn take_pending(&mut self, request: &PoolRequest, chunk: Index) -> Option<Index> {
        let owner = self.chunks[chunk].stream;
        if owner != request.stream && !self.wait_for(request.stream, owner) {
            return None;
        }
        if !self.wait_for_pending(chunk, request.stream) {
            return None;
        }
        self.chunks[chunk].stream = request.stream;
        self.make_free(chunk);
        self.take(chunk);
        self.stats.num_stream_steals += u64::from(owner != request.stream);
        Some(chunk)
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
