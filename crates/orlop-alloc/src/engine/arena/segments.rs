//! The segments of an arena: which bytes are in use, which segment is leased, and how they are rewound.

use super::lease::Lease;
use crate::backing::Region;
use crate::{Error, Record, RegionAction, RegionEvent, RegionWatches, Request, Result};
use orlop_core::{Alignment, Device};
use orlop_sync::CentralHeap;
use std::ops::Range;
use std::ptr::NonNull;

/// Number of low bits of a block's token that hold the segment's index; the bits above hold the arena's
/// index.
pub(in crate::engine) const SEGMENT_BITS: u32 = usize::BITS - 8;

const SEGMENT_MASK: usize = (1 << SEGMENT_BITS) - 1;

/// The maximum number of unused records that an arena keeps outside of thread slots.
const MAX_UNUSED: usize = 1024;

/// The minimum number of blocks for which a lease has memory to note their extents.
const MIN_LEASED_EXTENTS: usize = 64;

/// The maximum of [`LeasePolicy::after`].
const MAX_AFTER: u32 = 4096;

/// The segments and totals of an arena.
#[derive(Debug)]
pub(super) struct Segments {
    /// All segments by number; `None` is unused. Blocks are allocated from the last one in `current`.
    pub(super) all: Vec<Option<Segment>>,
    /// The numbers of the unused ones.
    pub(super) free: Vec<usize>,
    /// Indices of the segments that are not retired, in the order they were added.
    pub(super) current: Vec<usize>,
    /// The minimum size of the next segment in bytes.
    pub(super) next_segment: usize,
    pub(super) reserved: usize,
    pub(super) peak: usize,
    pub(super) device: Device,
    pub(super) watches: RegionWatches,
    /// The index of the arena among several, in the place that it has in tokens.
    pub(super) arena: usize,
    pub(super) leased: Option<LeasedSegment>,
    /// The number of calls that need all segments here: while it is not zero, no segment is leased.
    pub(super) paused: usize,
    pub(super) policy: LeasePolicy,
    /// Unused records, for the next thread that has none.
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    pub(super) unused: Vec<Box<Record>>,
}

/// The segment that a thread slot has leased: see [`Lease`].
#[derive(Debug, Clone, Copy)]
pub(super) struct LeasedSegment {
    /// The segment's index.
    pub(super) segment: usize,
    /// The slot's index.
    pub(super) slot: usize,
    /// The number of extents for which the lease has memory.
    extents: usize,
}

/// When a slot gets a lease: after a number of consecutive allocations, which doubles with each lease that
/// another thread ended. Ending the lease of another slot is expensive.
#[derive(Debug)]
pub(super) struct LeasePolicy {
    /// The required number of consecutive allocations before a lease.
    after: u32,
    /// The slot that allocated last.
    slot: usize,
    /// The number of its consecutive allocations without a lease.
    count: u32,
}

impl LeasePolicy {
    pub(super) fn new(after: u32) -> Self {
        Self { after, slot: usize::MAX, count: 0 }
    }

    /// Counts an allocation of `slot`, and returns whether the slot may get a lease.
    pub(super) fn note_allocation(&mut self, slot: usize) -> bool {
        if self.slot != slot {
            (self.slot, self.count) = (slot, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count > self.after
    }

    /// Notes that a lease was ended by another thread.
    pub(super) fn note_revocation(&mut self) {
        (self.after, self.count) = (self.after.saturating_mul(2).min(MAX_AFTER), 0);
    }
}

/// A region of which a prefix is handed out.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) region: Region,
    /// Length of the prefix in use. While the segment is leased, of the prefix that was in use before.
    pub(super) used: usize,
    /// Length of the prefix that was ever handed out, which may not be zero.
    pub(super) dirty: usize,
    /// The number of live blocks. Zero while the segment is leased: the lease has it.
    pub(super) live: usize,
    /// The number of blocks that were returned here since the segment was leased.
    pub(super) returned: usize,
    /// True after [`Segments::retire`]: the segment is removed when `live` reaches zero.
    pub(super) retired: bool,
    /// The addresses of the blocks since the last rewind, ascending. Empty while the segment is leased: the
    /// lease has them.
    extents: Vec<Range<usize>>,
}

/// An allocated part of a segment.
#[derive(Debug)]
pub(super) struct ArenaChunk {
    /// The token of a block: the indices of the arena and of the segment.
    pub(super) token: usize,
    pub(super) ptr: NonNull<u8>,
    /// Length of the prefix that may not be zero, in bytes.
    pub(super) dirty: usize,
}

impl CentralHeap for Segments {
    type Request<'a> = Request;
    type Chunk = ArenaChunk;
    type Region = Region;

    fn take(&mut self, request: &Request) -> Option<ArenaChunk> {
        self.bump(request.bytes.max(1), request.align)
    }

    fn add(&mut self, region: Region) {
        self.add_region(region);
    }
}

impl Segments {
    pub(super) fn current(&self) -> impl Iterator<Item = &Segment> + '_ {
        self.current.iter().filter_map(|&number| self.all.get(number)?.as_ref())
    }

    pub(super) fn live(&self) -> usize {
        self.current().map(|segment| segment.live).sum()
    }

    /// Allocates from the last segment.
    fn bump(&mut self, bytes: usize, align: Alignment) -> Option<ArenaChunk> {
        let &number = self.current.last()?;
        if self.is_leased(number) {
            return None;
        }
        let segment = self.all.get_mut(number)?.as_mut()?;
        let base = segment.region.address();
        let start = align.round_up(base.checked_add(segment.used)?).ok()? - base;
        let end = start.checked_add(bytes).filter(|&end| end <= segment.region.bytes)?;
        let dirty =
            if segment.region.zeroed { segment.dirty.saturating_sub(start).min(bytes) } else { bytes };
        segment.used = end;
        segment.dirty = segment.dirty.max(end);
        segment.live += 1;
        // Wrapping, because for address space without memory there is no object for the pointer to stay
        // within.
        let ptr = segment.region.ptr.as_ptr().wrapping_add(start);
        // SAFETY: `start <= end <= region.bytes`, and regions do not wrap around, so the pointer is not null.
        let ptr = unsafe { NonNull::new_unchecked(ptr) };
        segment.extents.push(base + start..base + end);
        Some(ArenaChunk { token: self.arena | number, ptr, dirty })
    }

    fn is_leased(&self, number: usize) -> bool {
        self.leased.is_some_and(|leased| leased.segment == number)
    }

    /// Leases the last segment to a slot that has just allocated from it, if the policy allows it.
    pub(super) fn lease(&mut self, slot: usize) -> Option<Lease> {
        if !self.policy.note_allocation(slot) || self.paused > 0 || self.leased.is_some() {
            return None;
        }
        let &number = self.current.last()?;
        let segment = self.all.get_mut(number)?.as_mut()?;
        let mut extents = std::mem::take(&mut segment.extents);
        extents.reserve(extents.len().max(MIN_LEASED_EXTENTS));
        self.leased = Some(LeasedSegment { segment: number, slot, extents: extents.capacity() });
        Some(Lease {
            free: segment.region.ptr.as_ptr().wrapping_add(segment.used),
            room: segment.region.bytes - segment.used,
            live: std::mem::take(&mut segment.live),
            token: self.arena | number,
            extents,
        })
    }

    /// Ends a lease of this arena: the segment is then in the state in which the lease leaves it.
    pub(super) fn end_lease(&mut self, lease: Lease) {
        let number = lease.token & SEGMENT_MASK;
        debug_assert!(self.is_leased(number), "a leased segment is not removed");
        self.leased = None;
        if let Some(Some(segment)) = self.all.get_mut(number) {
            segment.used = segment.region.bytes - lease.room;
            segment.dirty = segment.dirty.max(segment.used);
            // More blocks returned than were handed out: a caller broke the contract of `deallocate`.
            debug_assert!(segment.returned <= lease.live);
            segment.live = lease.live.saturating_sub(std::mem::take(&mut segment.returned));
            segment.extents = lease.extents;
        }
    }

    /// Counts out the block at `address` with this token. Returns the segment to release, if it was the last
    /// block of a retired one.
    pub(super) fn count_out(&mut self, token: usize, address: usize) -> Result<Option<Region>> {
        let number = token & SEGMENT_MASK;
        let is_leased = self.is_leased(number);
        let Some(Some(segment)) = self.all.get_mut(number) else {
            return Err(Error::ForeignPointer { address });
        };
        let offset = address.wrapping_sub(segment.region.address());
        if is_leased {
            if offset >= segment.region.bytes {
                return Err(Error::ForeignPointer { address });
            }
            segment.returned += 1;
            return Ok(None);
        }
        if offset >= segment.used {
            return Err(Error::ForeignPointer { address });
        }
        segment.live = segment.live.checked_sub(1).ok_or(Error::DoubleFree { address })?;
        Ok(if segment.live == 0 && segment.retired { self.remove(number) } else { None })
    }

    /// Grows the block that was allocated last, at `address` with `granted` bytes, to `bytes` bytes within
    /// its segment. Returns `false` if it is not that block, or there is no room.
    pub(super) fn grow_last(&mut self, token: usize, address: usize, granted: usize, bytes: usize) -> bool {
        let number = token & SEGMENT_MASK;
        if self.current.last() != Some(&number) {
            return false;
        }
        let Some(Some(segment)) = self.all.get_mut(number) else { return false };
        let start = address.wrapping_sub(segment.region.address());
        let end = start.checked_add(bytes).filter(|&end| end <= segment.region.bytes);
        let (Some(end), true) = (end, start.checked_add(granted) == Some(segment.used)) else {
            return false;
        };
        segment.used = end;
        segment.dirty = segment.dirty.max(end);
        if let Some(last) = segment.extents.last_mut() {
            last.end = last.start + bytes;
        }
        true
    }

    /// Returns the size of the live block that begins at `address`. No segment is leased.
    pub(super) fn size_at(&self, address: usize) -> Option<usize> {
        self.all.iter().flatten().find_map(|segment| {
            let found = segment.extents.binary_search_by_key(&address, |extent| extent.start).ok()?;
            segment.extents.get(found).map(Range::len)
        })
    }

    /// Returns the bytes of the metadata.
    pub(super) fn metadata(&self) -> usize {
        let extents: usize = self.all.iter().flatten().map(|segment| segment.extents.capacity()).sum();
        let leased = self.leased.map_or(0, |leased| leased.extents);
        self.all.capacity() * size_of::<Option<Segment>>()
            + self.free.capacity() * size_of::<usize>()
            + (extents + leased) * size_of::<Range<usize>>()
    }

    /// Checks the figures. No segment is leased.
    pub(super) fn verify(&self) -> Result<()> {
        let mut reserved = 0;
        for segment in self.all.iter().flatten() {
            reserved += segment.region.bytes;
            let is_ordered = segment.used <= segment.dirty && segment.dirty <= segment.region.bytes;
            let is_settled = segment.returned == 0 && (segment.live > 0 || !segment.retired);
            if !is_ordered || !is_settled || segment.live > segment.extents.len() {
                let rule = "a segment has its live blocks in the bytes in use";
                return Err(Error::Corrupt { rule, address: segment.region.address() });
            }
        }
        if self.all.iter().flatten().count() + self.free.len() != self.all.len() {
            return Err(Error::Corrupt { rule: "the free numbers are those of no segment", address: 0 });
        }
        if reserved != self.reserved || self.leased.is_some() {
            return Err(Error::Corrupt { rule: "the reserved bytes add up", address: 0 });
        }
        Ok(())
    }

    /// Keeps the record of a returned block for another one.
    pub(super) fn keep(&mut self, record: Box<Record>) {
        if self.unused.len() < MAX_UNUSED {
            self.unused.push(record);
        }
    }

    pub(super) fn event(&self, action: RegionAction, region: &Region) -> RegionEvent {
        RegionEvent::new(action, region.address(), region.bytes, self.device)
    }

    fn add_region(&mut self, region: Region) {
        self.watches.note(self.event(RegionAction::Reserved, &region));
        self.reserved += region.bytes;
        self.peak = self.peak.max(self.reserved);
        let segment =
            Segment { region, used: 0, dirty: 0, live: 0, returned: 0, retired: false, extents: Vec::new() };
        let segment = Some(segment);
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number] = segment;
                number
            }
            None => {
                self.all.push(segment);
                self.all.len() - 1
            }
        };
        self.current.push(number);
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Region> {
        let segment = self.all.get_mut(number)?.take()?;
        self.free.push(number);
        self.reserved -= segment.region.bytes;
        self.watches.note(self.event(RegionAction::Released, &segment.region));
        Some(segment.region)
    }

    /// Rewinds when no block is live. A single segment is reused; several are removed, and the next one is as
    /// large as all of them. Returns the removed regions.
    pub(super) fn rewind(&mut self) -> Vec<Region> {
        if let [number] = self.current[..] {
            if let Some(Some(segment)) = self.all.get_mut(number) {
                segment.used = 0;
                segment.extents.clear();
            }
            return Vec::new();
        }
        let total = self.current().map(|segment| segment.region.bytes).sum();
        self.next_segment = self.next_segment.max(total);
        let current = std::mem::take(&mut self.current);
        current.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Starts anew while blocks are live. Segments without live blocks are removed at once, the others when
    /// their blocks return. Returns the removed regions.
    pub(super) fn retire(&mut self) -> Vec<Region> {
        let total = self.current().map(|segment| segment.region.bytes).sum();
        self.next_segment = self.next_segment.max(total);
        let mut removed = Vec::new();
        for number in std::mem::take(&mut self.current) {
            match self.all.get_mut(number) {
                Some(Some(segment)) if segment.live > 0 => segment.retired = true,
                _ => removed.extend(self.remove(number)),
            }
        }
        removed
    }
}
