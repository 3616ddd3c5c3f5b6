//! The free of a block: at once, or when the other streams that use it are done.

use super::pools::is_small;
use super::{Chunk, ChunkState, DeviceBlock, Engine, Index, NONE};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use crate::stats::CacheTurnover;
use orlop_core::StreamId;

impl<B: DeviceBacking> Engine<B> {
    /// Records that a stream uses a block, besides the stream of its request (PyTorch: `record_stream`). A
    /// stream that was [retired](Self::retire_stream) used it before that.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotLive`] if the block is not live.
    pub fn record_stream(&mut self, block: DeviceBlock, stream: StreamId) -> Result<(), DeviceError> {
        let index = self.live(block)?;
        let stream = self.streams.number_of_use(stream);
        if self.chunks[index].stream != stream {
            self.add_use(index, stream);
        }
        Ok(())
    }

    /// Frees a block. The stream of its request may still run on it, and so may the recorded ones.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotLive`] if the block is not live; the engine is then unchanged.
    #[inline]
    pub fn free(&mut self, block: DeviceBlock) -> Result<(), DeviceError> {
        self.free_where(block, |_| true)
    }

    /// [`free`](Self::free), of a block that an address lies in.
    #[inline(always)]
    pub(crate) fn free_at(&mut self, block: DeviceBlock, address: usize) -> Result<(), DeviceError> {
        self.free_where(block, |chunk| chunk.covers(address))
    }

    #[inline(always)]
    fn free_where(
        &mut self,
        block: DeviceBlock,
        is_meant: impl FnOnce(&Chunk) -> bool,
    ) -> Result<(), DeviceError> {
        let index = block.0;
        let chunk = self.chunks.get_mut(index);
        let chunk = chunk.filter(|chunk| chunk.state == ChunkState::Live && is_meant(chunk));
        let Some(chunk) = chunk else { return Err(DeviceError::NotLive { block: index }) };
        let Chunk { size, pool, note: uses, after: number, .. } = *chunk;
        if number != NONE {
            self.period.log_free(number);
        }
        let small = is_small(pool);
        self.stats.allocation.sub(small, 1);
        self.stats.allocated_bytes.sub(small, size as u64);
        if size >= self.policy.max_split {
            self.stats.oversize_allocations.sub(1);
        }
        if uses != 0 || self.streams.is_uncommon {
            self.free_shared(index);
        } else if self.policy.extensions.keep_last_freed {
            chunk.state = ChunkState::LastFreed;
            let Chunk { requested, previous, next, .. } = *chunk;
            self.stats.count_inactive(small, size, requested);
            // The next request of another size merges it with them.
            self.chunks.prefetch(previous);
            self.chunks.prefetch(next);
            self.replace_last_freed(index);
        } else {
            self.make_free(index);
        }
        Ok(())
    }

    /// Frees the chunk of a block that other streams may use, or whose stream may have ended.
    #[inline(never)]
    fn free_shared(&mut self, index: Index) {
        if self.streams.is_uncommon {
            self.disown(index);
        }
        if self.chunks[index].note != 0 {
            self.free_later(index);
        } else if self.policy.extensions.keep_last_freed {
            self.count_inactive(index);
            self.chunks[index].state = ChunkState::LastFreed;
            self.replace_last_freed(index);
        } else {
            self.make_free(index);
        }
    }

    /// Takes back a live block that a thread's cache had: it was counted when it was freed into the cache.
    pub(crate) fn free_counted(&mut self, index: Index) {
        let number = self.chunks[index].after;
        if number != NONE {
            self.period.log_free(number);
        }
        if self.streams.is_uncommon {
            self.disown(index);
        }
        // No other stream has used it, and it is not a foreign stream's: there are no caches with those.
        debug_assert_eq!(self.chunks[index].note, 0, "a cached block that another stream may use");
        if self.policy.extensions.keep_last_freed {
            self.chunks[index].state = ChunkState::LastFreed;
            self.replace_last_freed(index);
        } else {
            self.insert_free(index);
        }
    }

    /// Counts what a thread's cache did.
    pub(crate) fn settle(&mut self, turnover: &CacheTurnover) {
        let high = self.stats.active_bytes.all.current.wrapping_add_signed(turnover.high_bytes());
        if high.cast_signed() > self.high_water.cast_signed() {
            self.high_water = high;
        }
        self.stats.settle(turnover);
    }

    /// Returns `true` if a thread may cache blocks of common pools: requests of a stream differ in nothing
    /// but their size and lifetime, and events can be recorded later. Captures that are noted at the device
    /// are not asked about: they begin and end without a call of the engine.
    pub(crate) fn allows_caches(&self) -> bool {
        !self.private.has_routes() && !self.captures.is_any_of_engine() && !self.streams.has_foreign()
    }

    /// Makes a chunk that was counted as inactive the last-freed one.
    #[inline(always)]
    fn replace_last_freed(&mut self, index: Index) {
        let before = std::mem::replace(&mut self.last_freed, index);
        if before != NONE {
            self.insert_free(before);
        }
    }

    /// Puts the last-freed chunk into its index.
    pub(crate) fn index_last_freed(&mut self) {
        let last_freed = std::mem::replace(&mut self.last_freed, NONE);
        if last_freed != NONE {
            self.insert_free(last_freed);
        }
    }

    /// Returns `true` if an address lies in a block, and the block is live.
    #[inline]
    pub(crate) fn is_within(&self, block: DeviceBlock, address: usize) -> bool {
        self.chunks.get(block.0).is_some_and(|chunk| chunk.state == ChunkState::Live && chunk.covers(address))
    }

    /// Returns the chunk of a live block.
    #[inline]
    fn live(&self, block: DeviceBlock) -> Result<Index, DeviceError> {
        match self.chunks.get(block.0) {
            Some(chunk) if chunk.state == ChunkState::Live => Ok(block.0),
            _ => Err(DeviceError::NotLive { block: block.0 }),
        }
    }
}
