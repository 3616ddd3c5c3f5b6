//! The streams that use a block: they are recorded, or ordered after the block's own stream.

use crate::{Block, DeviceOps, Error, Record, Result};
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

impl Record {
    /// Records that a stream uses the memory of a live block too, if its allocator waits for streams.
    pub(crate) fn record_use(&self, stream: StreamId) -> Result<()> {
        if self.granted == 0 {
            return Ok(());
        }
        if !self.honours_streams() {
            return Err(Error::StreamsNotHonoured { device: self.device, stream });
        }
        if stream != self.own_stream() {
            self.uses.record(stream);
        }
        Ok(())
    }

    /// See [`Block::acquire_for`](crate::Block::acquire_for).
    pub(crate) fn acquire_for(&self, ops: &dyn DeviceOps, stream: StreamId) -> Result<bool> {
        if self.granted > 0 {
            ops.check_orders(self.device)?;
        }
        // SAFETY: `wait_for` orders the streams (`DeviceOps`, obligation 5).
        unsafe { self.acquire_with(stream, |own| ops.wait_for(stream, own)) }
    }

    /// As [`Record::acquire_for`], for work after which nothing else orders the users of the block: the
    /// stream waits for all of them each time.
    pub(crate) fn acquire_in_order(&self, ops: &dyn DeviceOps, stream: StreamId) -> Result<bool> {
        let is_known = self.granted > 0 && (stream == self.own_stream() || self.uses.is_ordered(stream));
        let is_kept = self.acquire_for(ops, stream)?;
        if self.granted > 0 && is_kept {
            let own = Some(self.own_stream()).filter(|_| is_known);
            for user in own.into_iter().chain(self.uses.iter()).filter(|&user| user != stream) {
                ops.wait_for(stream, user)?;
            }
        }
        Ok(is_kept)
    }

    /// See [`Block::acquire_with`](crate::Block::acquire_with).
    ///
    /// # Safety
    ///
    /// As for that function.
    pub(crate) unsafe fn acquire_with(
        &self,
        stream: StreamId,
        wait_for: impl FnOnce(StreamId) -> Result<()>,
    ) -> Result<bool> {
        if self.granted == 0 || !self.honours_streams() {
            return Ok(self.granted == 0);
        }
        let own = self.own_stream();
        // Noted after the wait: if that fails, the next use waits.
        if stream != own && !self.uses.is_ordered(stream) {
            // The host's own work is done.
            if own != StreamId::HOST {
                wait_for(own)?;
            }
            self.uses.order(stream);
        }
        Ok(true)
    }

    /// Returns the stream that a live block was allocated for: the default one of its device if the request
    /// named none.
    pub(super) fn own_stream(&self) -> StreamId {
        if self.stream == StreamId::HOST { StreamId::default_of(self.device) } else { self.stream }
    }

    /// Returns `true` if a live block is pinned memory of an allocator.
    pub(super) fn is_pinned(&self) -> bool {
        // SAFETY: the block is live, so the cell of its owner exists.
        self.allocator().is_some_and(|owner| unsafe { owner.as_ref() }.allocator().semantics().pinned)
    }

    /// Returns `true` if the allocator of a live block reuses it only after the streams that used it. So is a
    /// part of such a block, on a device: the host does not wait for its end.
    pub(crate) fn honours_streams(&self) -> bool {
        if let Some(whole) = &self.whole {
            return !whole.device.is_cpu() && Record::honours_streams(whole);
        }
        // SAFETY: the block is live, so the cell of its owner exists.
        self.owner.is_some_and(|owner| unsafe { owner.as_ref() }.allocator().semantics().stream_ordered)
    }
}
