//! The streams that use a block: they are recorded, or ordered after the block's own stream.

use crate::{Block, DeviceOps, Result};
use orlop_core::StreamId;

impl Block {
    /// Returns the other streams that used the block, latest first.
    pub fn stream_uses(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.raw.uses.iter()
    }

    /// Records that `stream` uses the memory too, so that it is not reused before that stream has finished
    /// its work. The caller has ordered that work after the block's own stream; [`Block::acquire_for`], which
    /// does so, is not made unnecessary by this.
    ///
    /// # Errors
    ///
    /// [`Error::StreamsNotHonoured`](crate::Error::StreamsNotHonoured) if the memory would be reused without
    /// waiting for the stream: its allocator's [`Semantics`](crate::Semantics) are not stream-ordered, as for
    /// every CPU engine, or the memory is foreign. Nothing is recorded then: synchronize with the stream
    /// before the block is dropped.
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        self.raw.record_use(stream)
    }

    /// Prepares the block for work of `ops` on `stream`. Records the stream, as [`Block::record_stream`]
    /// does, so that dropping the block defers the reuse of its memory. The first time for a stream other
    /// than the block's own, the stream waits for the work submitted to that so far: memory that was reused
    /// may still be in use there, and so may its first contents.
    ///
    /// Returns `false` if the memory is not kept until the stream has done its work: the allocator does not
    /// wait for streams, or the memory is foreign. Then synchronize with the stream before the block is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOperations`](crate::Error::WrongOperations) if `ops` are of a device of another type,
    /// unless the block is in host memory; those of [`DeviceOps::wait_for`].
    pub fn acquire_for(&self, ops: &dyn DeviceOps, stream: StreamId) -> Result<bool> {
        self.raw.acquire_for(ops, stream)
    }

    /// As [`Block::acquire_for`], where `wait_for` makes `stream` wait for the work submitted so far to the
    /// stream that it is passed.
    ///
    /// # Errors
    ///
    /// That of `wait_for`.
    ///
    /// # Safety
    ///
    /// When `wait_for` has returned `Ok`, `stream` waits for the other.
    pub unsafe fn acquire_with(
        &self,
        stream: StreamId,
        wait_for: impl FnOnce(StreamId) -> Result<()>,
    ) -> Result<bool> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.acquire_with(stream, wait_for) }
    }
}
