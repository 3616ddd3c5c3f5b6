//! Free chunks of other streams.
//!
//! A block that was freed in one stream may still be in use there. Another stream can have its memory if it
//! waits, on the device, for all work that the first was given so far. The host does not wait.
//!
//! PyTorch's allocator does not do this: memory stays with the stream of its first request.

use super::chunks::Index;
use super::{Engine, PoolRequest};
use crate::backing::DeviceBacking;

impl<B: DeviceBacking> Engine<B> {
    /// Takes the best fitting free chunk of other streams out of its index; the request's stream waits for
    /// the chunk's. `None` during a capture: a wait would draw a stream into it, or end it.
    pub(crate) fn steal(&mut self, request: &PoolRequest) -> Option<Index> {
        if self.private.is_capturing() {
            return None;
        }
        let pool = &self.pools[request.pool as usize];
        let others = pool.streams().filter(|&(stream, of)| stream != request.stream && !of.free.is_empty());
        let found = others.filter_map(|(_, of)| Some(of.free.find(&self.chunks, request.size)?.0));
        let found = found.filter(|&chunk| self.policy.serves(self.chunks[chunk].size, request.size));
        let chunk = found.min_by_key(|&chunk| (self.chunks[chunk].size, self.chunks[chunk].address))?;
        if !self.wait_for(request.stream, self.chunks[chunk].stream) {
            return None;
        }
        self.take(chunk);
        self.stats.num_stream_steals += 1;
        Some(chunk)
    }

    /// Makes a stream wait, on the device, for all work that another was given so far. Returns `false` if it
    /// does not: memory of the other stream is not for it then.
    #[must_use]
    pub(crate) fn wait_for(&mut self, stream: u32, other: u32) -> bool {
        let waits = self.backing.wait_for(self.streams.id(stream), self.streams.id(other));
        let waits = self.noted(waits).is_ok();
        self.stats.num_stream_waits += u64::from(waits);
        waits
    }
}
