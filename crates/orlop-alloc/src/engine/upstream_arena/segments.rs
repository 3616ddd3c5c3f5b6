//! The segments of an arena over an allocator: blocks of that allocator, by the stream that they are for.

use crate::{Access, Block, Error, Result};
use orlop_core::{Alignment, StreamId};
use std::ops::Range;
use std::ptr::NonNull;

/// A block of the allocator below, of which a prefix is handed out.
#[derive(Debug)]
struct UpstreamSegment {
    block: Block,
    /// Length of the prefix in use.
    used: usize,
    /// Length of the prefix that may not be zero.
    dirty: usize,
    /// The number of live blocks.
    live: usize,
    /// True if it is released when `live` reaches zero, and nothing more is allocated from it.
    retired: bool,
    /// The blocks since the last rewind, in order.
    extents: Vec<Range<usize>>,
}

/// The segments from which the blocks of one stream are allocated.
#[derive(Debug)]
struct StreamSegments {
    stream: StreamId,
    /// Indices in the order they were added: blocks are allocated from the last one.
    current: Vec<usize>,
    /// The minimum size of the next segment in bytes.
    next: usize,
}

/// An allocated part of a segment.
#[derive(Debug)]
pub(super) struct SegmentPart {
    /// The index of the segment.
    pub(super) token: usize,
    pub(super) ptr: NonNull<u8>,
    pub(super) access: Access,
    /// Length of the prefix that may not be zero.
    pub(super) dirty: usize,
}

/// All segments, and the bytes in them.
#[derive(Debug, Default)]
pub(super) struct UpstreamSegments {
    all: Vec<Option<UpstreamSegment>>,
    /// The indices of `None` in `all`.
    free: Vec<usize>,
    streams: Vec<StreamSegments>,
    /// The size of the first segment of a stream.
    first: usize,
    /// Bytes of segments, with those that are being allocated.
    pub(super) reserved: usize,
    pub(super) peak: usize,
}

impl UpstreamSegment {
    /// Allocates the next bytes, if there is room.
    fn bump(&mut self, token: usize, bytes: usize, align: Alignment) -> Option<SegmentPart> {
        let base = self.block.as_ptr().as_ptr().addr();
        let start = align.round_up(base.checked_add(self.used)?).ok()?.checked_sub(base)?;
        let end = start.checked_add(bytes).filter(|&end| end <= self.block.len())?;
        // Wrapping, because for address space without memory there is no object to stay within.
        let ptr = NonNull::new(self.block.as_ptr().as_ptr().wrapping_add(start))?;
        let dirty = self.dirty.saturating_sub(start).min(bytes);
        (self.used, self.dirty) = (end, self.dirty.max(end));
        self.live += 1;
        self.extents.push(start..end);
        Some(SegmentPart { token, ptr, access: self.block.access(), dirty })
    }

    /// Returns `true` if the next blocks can have its bytes at once: work on them that is not done yet is of
    /// the stream that uses them next. The host does not wait for a stream.
    fn can_rewind(&self) -> bool {
        let is_hosts = self.block.stream() == StreamId::HOST;
        !self.block.raw().has_stream_uses() && (is_hosts || !self.block.device().is_cpu())
    }
}

impl UpstreamSegments {
    /// Creates an empty table, where the first segment of a stream has `first` bytes.
    pub(super) fn new(first: usize) -> Self {
        Self { first, ..Self::default() }
    }

    fn of(&mut self, stream: StreamId) -> &mut StreamSegments {
        let known = self.streams.iter().position(|of| of.stream == stream);
        let place = known.unwrap_or_else(|| {
            self.streams.push(StreamSegments { stream, current: Vec::new(), next: self.first });
            self.streams.len() - 1
        });
        &mut self.streams[place]
    }

    /// Returns the minimum size of the next segment of a stream.
    pub(super) fn next_size(&mut self, stream: StreamId) -> usize {
        self.of(stream).next
    }

    /// Allocates from the last segment of a stream.
    pub(super) fn bump(&mut self, stream: StreamId, bytes: usize, align: Alignment) -> Option<SegmentPart> {
        let &number = self.of(stream).current.last()?;
        self.all.get_mut(number)?.as_mut()?.bump(number, bytes, align)
    }

    /// Adds a segment, and allocates its first bytes. With `alone` they are all that is allocated from it.
    pub(super) fn add(
        &mut self,
        stream: StreamId,
        block: Block,
        (bytes, align): (usize, Alignment),
        alone: bool,
    ) -> Option<SegmentPart> {
        // A block is zero if that was requested, which it is for one that is alone.
        let dirty = if alone { 0 } else { block.len() };
        let mut segment =
            UpstreamSegment { block, used: 0, dirty, live: 0, retired: alone, extents: Vec::new() };
        let number = self.free.last().copied().unwrap_or(self.all.len());
        let part = segment.bump(number, bytes, align)?;
        match self.free.pop() {
            Some(free) => self.all[free] = Some(segment),
            None => self.all.push(Some(segment)),
        }
        if !alone {
            self.of(stream).current.push(number);
        }
        Some(part)
    }

    /// Counts out the block at `address`, which `uses` used. Returns the segment to release, if any.
    pub(super) fn count_out(
        &mut self,
        token: usize,
        address: usize,
        mut uses: impl Iterator<Item = StreamId>,
    ) -> Result<Option<Block>> {
        let foreign = Error::ForeignPointer { address };
        let Some(Some(segment)) = self.all.get_mut(token) else { return Err(foreign) };
        let is_inside = address.checked_sub(segment.block.as_ptr().as_ptr().addr());
        if segment.live == 0 || is_inside.is_none_or(|offset| offset >= segment.used) {
            return Err(foreign);
        }
        uses.try_for_each(|stream| segment.block.record_stream(stream))?;
        segment.live -= 1;
        let ends = segment.retired && segment.live == 0;
        Ok(if ends { self.remove(token) } else { None })
    }

    /// Grows the block that was allocated last in its segment.
    pub(super) fn grow_last(&mut self, token: usize, address: usize, bytes: usize) -> bool {
        let Some(Some(segment)) = self.all.get_mut(token) else { return false };
        let Some(last) = segment.extents.last_mut() else { return false };
        let base = segment.block.as_ptr().as_ptr().addr();
        let end = last.start.checked_add(bytes).filter(|&end| end <= segment.block.len());
        let (Some(end), true) = (end, base.checked_add(last.start) == Some(address)) else { return false };
        last.end = end;
        (segment.used, segment.dirty) = (end, segment.dirty.max(end));
        true
    }

    /// Returns the size of the live block at an address.
    pub(super) fn size_at(&self, address: usize) -> Option<usize> {
        self.all.iter().flatten().find_map(|segment| {
            let start = address.checked_sub(segment.block.as_ptr().as_ptr().addr())?;
            let found = segment.extents.binary_search_by_key(&start, |extent| extent.start).ok()?;
            segment.extents.get(found).map(Range::len)
        })
    }

    fn current(&self) -> impl Iterator<Item = &UpstreamSegment> + '_ {
        let numbers = self.streams.iter().flat_map(|of| of.current.iter());
        numbers.filter_map(|&number| self.all.get(number)?.as_ref())
    }

    /// Returns the number of live blocks that were allocated since the last rewind.
    pub(super) fn live(&self) -> usize {
        self.current().map(|segment| segment.live).sum()
    }

    /// Returns the bytes allocated since the last rewind, including padding.
    pub(super) fn used(&self) -> usize {
        self.current().map(|segment| segment.used).sum()
    }

    /// Returns the number of segments.
    pub(super) fn count(&self) -> usize {
        self.all.iter().flatten().count()
    }

    fn remove(&mut self, number: usize) -> Option<Block> {
        let segment = self.all.get_mut(number)?.take()?;
        self.free.push(number);
        self.reserved -= segment.block.len();
        Some(segment.block)
    }

    /// Makes all segments of a stream those of the past, if they are not reused as they are; the next one is
    /// as large as all of them. Segments with live blocks stay until these return. Returns the others.
    fn end_segments(&mut self, place: usize, ended: &mut Vec<Block>) {
        let current = std::mem::take(&mut self.streams[place].current);
        let size = |&number: &usize| self.all[number].as_ref().map_or(0, |segment| segment.block.len());
        let total = current.iter().map(size).sum();
        let of = &mut self.streams[place];
        of.next = of.next.max(total);
        for number in current {
            match self.all.get_mut(number) {
                Some(Some(segment)) if segment.live > 0 => segment.retired = true,
                _ => ended.extend(self.remove(number)),
            }
        }
    }

    /// Starts anew: a single segment without live blocks is reused if the streams allow it, the others end.
    /// Returns those to release.
    pub(super) fn rewind(&mut self) -> Vec<Block> {
        let mut ended = Vec::new();
        for place in 0..self.streams.len() {
            if let [number] = self.streams[place].current[..]
                && let Some(Some(segment)) = self.all.get_mut(number)
                && segment.live == 0
                && segment.can_rewind()
            {
                segment.used = 0;
                segment.extents.clear();
            } else {
                self.end_segments(place, &mut ended);
            }
        }
        ended
    }

    /// Ends all segments. Returns those to release.
    pub(super) fn end_all(&mut self) -> Vec<Block> {
        let mut ended = Vec::new();
        (0..self.streams.len()).for_each(|place| self.end_segments(place, &mut ended));
        self.streams.clear();
        ended
    }

    /// Checks the figures, while no segment is being added.
    pub(super) fn verify(&self) -> Result<()> {
        for segment in self.all.iter().flatten() {
            let is_ordered = segment.used <= segment.dirty && segment.dirty <= segment.block.len();
            if !is_ordered || segment.live > segment.extents.len() || (segment.retired && segment.live == 0) {
                let rule = "a segment has its live blocks in the bytes in use";
                return Err(Error::Corrupt { rule, address: segment.block.as_ptr().as_ptr().addr() });
            }
        }
        if self.count() + self.free.len() != self.all.len() {
            return Err(Error::Corrupt { rule: "the free indices are those of no segment", address: 0 });
        }
        let reserved: usize = self.all.iter().flatten().map(|segment| segment.block.len()).sum();
        if reserved > self.reserved {
            return Err(Error::Corrupt { rule: "the reserved bytes add up", address: 0 });
        }
        Ok(())
    }
}
