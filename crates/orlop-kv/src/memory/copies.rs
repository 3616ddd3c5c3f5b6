//! Copies of ranges of a pool's memory. They are passed on in arrays of a fixed length, so nothing allocates.

use super::{PoolMemory, PoolMemoryMut, no_memory};
use orlop_alloc::{Block, CopyRange, DeviceOps, Error, PendingCopy, Result};
use orlop_core::StreamId;
use std::io;
use std::ops::Range;

/// The maximum number of copies that are passed on at once.
const BATCH: usize = 32;

/// Bytes of one segment.
#[derive(Debug, Clone, Copy)]
struct SegmentRange {
    segment: usize,
    start: usize,
    bytes: usize,
}

impl PoolMemory {
    /// Copies ranges of the pool to the consecutive bytes of `host`, by `ops` on `stream`, as
    /// [`Block::copy_ranges_by`] does.
    ///
    /// # Errors
    /// If a range is not inside a segment that is there, and as for [`Block::copy_ranges_by`]. Ranges before
    /// it may have been copied then.
    pub fn copy_to(
        &self,
        ops: &dyn DeviceOps,
        ranges: impl IntoIterator<Item = Range<u64>>,
        host: &mut Block,
        stream: StreamId,
    ) -> Result<()> {
        let pair = |place: SegmentRange, to| CopyRange { to, from: place.start, bytes: place.bytes };
        in_batches(self.segment_bytes, ranges, pair, |segment, copies| {
            host.copy_ranges_by(ops, self.segment(segment).ok_or_else(no_memory)?, copies, stream)
        })
    }

    /// As [`copy_to`](Self::copy_to), without waiting for the copies.
    pub(crate) fn submit_to(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        host: &mut PendingCopy,
    ) -> Result<()> {
        let pair = |place: SegmentRange, to| CopyRange { to, from: place.start, bytes: place.bytes };
        in_batches(self.segment_bytes, ranges, pair, |segment, copies| {
            host.copy_ranges(self.segment(segment).ok_or_else(no_memory)?, copies)
        })
    }

    /// See [`PoolMemoryMut::copy_from`].
    pub(crate) fn copy_from(
        &mut self,
        ops: &dyn DeviceOps,
        ranges: impl IntoIterator<Item = Range<u64>>,
        host: &Block,
        stream: StreamId,
    ) -> Result<()> {
        let pair = |place: SegmentRange, from| CopyRange { to: place.start, from, bytes: place.bytes };
        in_batches(self.segment_bytes, ranges, pair, |segment, copies| {
            let segment = self.segments.get_mut(segment).and_then(Option::as_mut);
            segment.ok_or_else(no_memory)?.copy_ranges_by(ops, host, copies, stream)
        })
    }

    /// Copies a range of the pool to the bytes from `to` on, by `ops` on `stream`.
    pub(crate) fn copy_within(
        &mut self,
        ops: &dyn DeviceOps,
        from: Range<u64>,
        to: u64,
        stream: StreamId,
    ) -> Result<()> {
        let end = to.checked_add(from.end.saturating_sub(from.start)).ok_or_else(invalid_range)?;
        let [from, to] = [from, to..end].map(|range| place(self.segment_bytes, &range));
        let (from, to) = (from?, to?);
        let copy = CopyRange { to: to.start, from: from.start, bytes: from.bytes };
        if from.segment == to.segment {
            let segment = self.segments.get_mut(to.segment).and_then(Option::as_mut);
            return segment.ok_or_else(no_memory)?.copy_within_by(ops, &[copy], stream);
        }
        let both = self.segments.get_disjoint_mut([to.segment, from.segment]);
        let Ok([Some(to), Some(from)]) = both else { return Err(no_memory()) };
        to.copy_ranges_by(ops, from, &[copy], stream)
    }
}

impl PoolMemoryMut<'_> {
    /// Copies the consecutive bytes of `host` to ranges of the pool, by `ops` on `stream`.
    ///
    /// # Errors
    /// As for [`PoolMemory::copy_to`].
    pub fn copy_from(
        &mut self,
        ops: &dyn DeviceOps,
        ranges: impl IntoIterator<Item = Range<u64>>,
        host: &Block,
        stream: StreamId,
    ) -> Result<()> {
        self.0.copy_from(ops, ranges, host, stream)
    }
}

/// Passes on the ranges of each segment with their places in host memory, where they follow each other.
fn in_batches(
    segment_bytes: u64,
    ranges: impl IntoIterator<Item = Range<u64>>,
    pair: impl Fn(SegmentRange, usize) -> CopyRange,
    mut copy: impl FnMut(usize, &[CopyRange]) -> Result<()>,
) -> Result<()> {
    let mut batch = [CopyRange { to: 0, from: 0, bytes: 0 }; BATCH];
    let (mut len, mut segment, mut host) = (0, 0, 0_usize);
    for range in ranges {
        let place = place(segment_bytes, &range)?;
        if len > 0 && (len == BATCH || place.segment != segment) {
            copy(segment, &batch[..len])?;
            len = 0;
        }
        segment = place.segment;
        batch[len] = pair(place, host);
        len += 1;
        host = host.checked_add(place.bytes).ok_or_else(invalid_range)?;
    }
    if len > 0 { copy(segment, &batch[..len]) } else { Ok(()) }
}

/// Returns the segment in which a range begins. Whether the range ends there is checked by the copy.
fn place(segment_bytes: u64, range: &Range<u64>) -> Result<SegmentRange> {
    let size = |bytes: u64| usize::try_from(bytes).map_err(|error| Error::Backend(Box::new(error)));
    Ok(SegmentRange {
        segment: size(range.start / segment_bytes)?,
        start: size(range.start % segment_bytes)?,
        bytes: size(range.end.checked_sub(range.start).ok_or_else(invalid_range)?)?,
    })
}

/// The error of a range that ends before its start, or of ranges with more bytes than memory can have.
fn invalid_range() -> Error {
    Error::Backend(Box::new(io::Error::from(io::ErrorKind::InvalidInput)))
}
