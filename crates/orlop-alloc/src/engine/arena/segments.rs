//! The segments of an arena: which bytes are in use, and how they are rewound.

use crate::backing::Region;
use crate::{RegionAction, RegionEvent, RegionWatches, Request};
use orlop_core::{Alignment, Device};
use orlop_sync::CentralHeap;
use std::ptr::NonNull;

/// The segments and totals of an arena.
#[derive(Debug)]
pub(super) struct Segments {
    /// All segments by number; `None` is unused. Blocks are allocated from the last one in `current`.
    pub(super) all: Vec<Option<Segment>>,
    /// Indices of the segments that are not retired, in the order they were added.
    pub(super) current: Vec<usize>,
    /// The minimum size of the next segment in bytes.
    pub(super) next_segment: usize,
    pub(super) reserved: usize,
    pub(super) peak: usize,
    pub(super) device: Device,
    pub(super) watches: RegionWatches,
}

/// A region of which a prefix is handed out.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) region: Region,
    pub(super) used: usize,
    /// Length of the prefix that was ever handed out, which may not be zero.
    pub(super) dirty: usize,
    pub(super) live: usize,
    /// True after [`Segments::retire`]: the segment is removed when `live` reaches zero.
    pub(super) retired: bool,
}

/// An allocated part of a segment.
#[derive(Debug)]
pub(super) struct ArenaChunk {
    /// The segment's index.
    pub(super) segment: usize,
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
        Some(ArenaChunk { segment: number, ptr, dirty })
    }

    pub(super) fn event(&self, action: RegionAction, region: &Region) -> RegionEvent {
        RegionEvent::new(action, region.address(), region.bytes, self.device)
    }

    fn add_region(&mut self, region: Region) {
        self.watches.note(self.event(RegionAction::Reserved, &region));
        self.reserved += region.bytes;
        self.peak = self.peak.max(self.reserved);
        let segment = Some(Segment { region, used: 0, dirty: 0, live: 0, retired: false });
        let number = match self.all.iter().position(Option::is_none) {
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
