//! The free of a block: at once, or when the other streams that use it are done.

use super::{Chunk, ChunkState, DeviceBlock, Engine, Index, NONE};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use orlop_core::StreamId;

impl<B: DeviceBacking> Engine<B> {
    /// Records that a stream uses a block, besides the stream of its request (PyTorch: `record_stream`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotLive`] if the block is not live.
    pub fn record_stream(&mut self, block: DeviceBlock, stream: StreamId) -> Result<(), DeviceError> {
        let index = self.live(block)?;
        let stream = self.streams.number(stream);
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
    #[inline(always)]
    pub fn free(&mut self, block: DeviceBlock) -> Result<(), DeviceError> {
        let index = self.live(block)?;
        if self.streams.is_uncommon {
            self.disown(index);
        }
        let Chunk { size, pool, note: uses, after: number, .. } = self.chunks[index];
        if number != NONE {
            self.period.log_free(number);
        }
        let small = self.pools[pool as usize].small;
        self.stats.allocation.sub(small, 1);
        self.stats.allocated_bytes.sub(small, size as u64);
        if size >= self.policy.max_split {
            self.stats.oversize_allocations.sub(1);
        }
        if uses != 0 {
            self.free_later(index);
        } else if self.policy.extensions.keep_last_freed {
            self.count_inactive(index);
            let before = std::mem::replace(&mut self.last_freed, index);
            self.chunks[index].state = ChunkState::LastFreed;
            if before != NONE {
                self.insert_free(before);
            }
        } else {
            self.make_free(index);
        }
        Ok(())
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
        let within = |chunk: &Chunk| address.wrapping_sub(chunk.address) < chunk.size;
        self.chunks.get(block.0).is_some_and(|chunk| chunk.state == ChunkState::Live && within(chunk))
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
