//! The memory of a mock device: regions, reservations, and physical pages that keep their history when they
//! move.

use super::DeviceFault;
use super::timeline::Timeline;
use orlop_race::{AccessKind, AccessMap, HOST_QUEUE, WorkId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Regions and reservations begin at multiples of this number of bytes.
const STEP: usize = 2 << 20;

/// The largest reservation.
const MAX_RANGE: usize = 1 << 46;

/// The granularity of pages, in bytes.
pub(super) const GRANULARITY: usize = 4096;

/// Physical memory of the mock device: a region, or a page.
#[derive(Debug, Default)]
struct PhysicalMemory {
    bytes: usize,
    /// The last work on each range, by queue.
    uses: AccessMap<usize>,
    /// Whether a failed move lost its contents.
    is_lost: bool,
    /// Whether its release failed.
    is_leaked: bool,
}

#[derive(Debug)]
struct MockReservation {
    bytes: usize,
    /// Whether its release failed.
    is_leaked: bool,
}

#[derive(Debug)]
pub(super) struct MockMemory {
    capacity: u64,
    used: u64,
    next: usize,
    regions: BTreeMap<usize, PhysicalMemory>,
    ranges: BTreeMap<usize, MockReservation>,
    pages: BTreeMap<usize, PhysicalMemory>,
}

impl MockMemory {
    pub(super) fn new(capacity: u64) -> Self {
        let (regions, ranges, pages) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { capacity, used: 0, next: 1 << 32, regions, ranges, pages }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the bytes and the reservations that could be released and were not.
    pub(super) fn left(&self) -> (u64, usize) {
        let leaked = self.regions.values().chain(self.pages.values()).filter(|memory| memory.is_leaked);
        let leaked: u64 = leaked.map(|memory| memory.bytes as u64).sum();
        let is_left = |&(&start, range): &(&usize, &MockReservation)| {
            let mut pages = self.pages.range(start..start + range.bytes);
            !range.is_leaked && !pages.any(|(_, page)| page.is_leaked)
        };
        (self.used - leaked, self.ranges.iter().filter(is_left).count())
    }

    /// Notes that the release of a region or of pages failed.
    pub(super) fn leak(&mut self, address: usize, bytes: usize) {
        let region = self.regions.range_mut(address..address + bytes);
        for (_, memory) in region.chain(self.pages.range_mut(address..address + bytes)) {
            memory.is_leaked = true;
        }
    }

    /// Notes that the release of a reservation failed.
    pub(super) fn leak_range(&mut self, address: usize) {
        if let Some(range) = self.ranges.get_mut(&address) {
            range.is_leaked = true;
        }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let used = self.used.checked_add(bytes as u64).filter(|&used| used <= self.capacity);
        self.used = used.unwrap_or(self.used);
        used.is_some()
    }

    /// Returns unused addresses, with a gap after them.
    fn addresses(&mut self, bytes: usize) -> Option<usize> {
        let start = self.next;
        let end = start.checked_add(bytes)?.checked_next_multiple_of(STEP)?.checked_add(STEP)?;
        isize::try_from(end).ok()?;
        self.next = end;
        Some(start)
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        if !self.take(bytes) {
            return None;
        }
        let address = self.addresses(bytes)?;
        self.regions.insert(address, PhysicalMemory { bytes, ..PhysicalMemory::default() });
        Some(address)
    }

    pub(super) fn release(
        &mut self,
        address: usize,
        bytes: usize,
        timeline: &Timeline,
    ) -> Result<(), DeviceFault> {
        let call = "release";
        if self.regions.get(&address).is_none_or(|region| region.bytes != bytes || region.is_leaked) {
            return Err(DeviceFault::NotHeld { call, address, bytes });
        }
        let region = self.regions.remove(&address).unwrap_or_default();
        self.used -= bytes as u64;
        region.is_quiet(call, address, timeline)
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let address = if bytes <= MAX_RANGE { self.addresses(bytes)? } else { return None };
        self.ranges.insert(address, MockReservation { bytes, is_leaked: false });
        Some(address)
    }

    pub(super) fn release_range(&mut self, address: usize, bytes: usize) -> Result<(), DeviceFault> {
        let call = "release_addresses";
        if self.ranges.get(&address).is_none_or(|range| range.bytes != bytes || range.is_leaked) {
            return Err(DeviceFault::NotHeld { call, address, bytes });
        }
        self.ranges.remove(&address);
        match self.pages.range(address..address + bytes).next() {
            Some((&address, _)) => Err(DeviceFault::Mapped { call, address }),
            None => Ok(()),
        }
    }

    /// Checks that pages may be mapped here: whole pages of one reservation, where there are none.
    fn check_hole(
        &mut self,
        call: &'static str,
        address: usize,
        bytes: usize,
        page: usize,
    ) -> Result<(), DeviceFault> {
        let range = self.ranges.range_mut(..=address).next_back();
        let has = |range: &MockReservation, start| !range.is_leaked && address - start + bytes <= range.bytes;
        let range = range.filter(|(start, range)| has(range, **start));
        let Some((&start, _)) = range else { return Err(DeviceFault::NotHeld { call, address, bytes }) };
        let is_whole = bytes > 0
            && page.is_multiple_of(GRANULARITY)
            && (address - start).is_multiple_of(GRANULARITY)
            && bytes.is_multiple_of(page);
        if !is_whole {
            return Err(DeviceFault::NotWholePages { call, address, bytes, page });
        }
        match self.pages.range(address..address + bytes).next() {
            Some((&address, _)) => Err(DeviceFault::Mapped { call, address }),
            None => Ok(()),
        }
    }

    /// Maps new pages. Returns `false` if there is no memory.
    pub(super) fn map(&mut self, address: usize, bytes: usize, page: usize) -> Result<bool, DeviceFault> {
        self.check_hole("map", address, bytes, page)?;
        let has_memory = self.take(bytes);
        if has_memory {
            let pages = (address..address + bytes).step_by(page);
            self.pages
                .extend(pages.map(|at| (at, PhysicalMemory { bytes: page, ..PhysicalMemory::default() })));
        }
        Ok(has_memory)
    }

    /// Takes a page out that has at most `left` bytes: a multiple of `page`.
    fn take_page(
        &mut self,
        call: &'static str,
        address: usize,
        (left, page): (usize, usize),
    ) -> Result<PhysicalMemory, DeviceFault> {
        let memory = self.pages.remove(&address).ok_or(DeviceFault::NotMapped { call, address })?;
        if memory.is_leaked {
            return Err(DeviceFault::NotMapped { call, address });
        }
        let bytes = memory.bytes;
        if bytes.is_multiple_of(page) && bytes <= left {
            Ok(memory)
        } else {
            Err(DeviceFault::NotWholePages { call, address, bytes, page })
        }
    }

    pub(super) fn unmap(
        &mut self,
        address: usize,
        bytes: usize,
        page: usize,
        timeline: &Timeline,
    ) -> Result<(), DeviceFault> {
        let mut at = address;
        while at < address + bytes {
            let memory = self.take_page("unmap", at, (address + bytes - at, page))?;
            self.used -= memory.bytes as u64;
            memory.is_quiet("unmap", at, timeline)?;
            at += memory.bytes;
        }
        Ok(())
    }

    /// Moves pages. If it `fails` they stay, and those for which `loses` returns `true` lose their contents.
    pub(super) fn remap(
        &mut self,
        (from, to): (usize, usize),
        (bytes, page): (usize, usize),
        timeline: &Timeline,
        fails: bool,
        mut loses: impl FnMut() -> bool,
    ) -> Result<(), DeviceFault> {
        self.check_hole("remap", to, bytes, page)?;
        let mut offset = 0;
        while offset < bytes {
            let mut memory = self.take_page("remap", from + offset, (bytes - offset, page))?;
            if memory.is_lost {
                return Err(DeviceFault::NotMapped { call: "remap", address: from + offset });
            }
            memory.is_quiet("remap", from + offset, timeline)?;
            memory.is_lost = fails && loses();
            let at = if fails { from + offset } else { to + offset };
            offset += memory.bytes;
            self.pages.insert(at, memory);
        }
        Ok(())
    }

    /// Records work on bytes. If `is_first`, all earlier work on them must be ordered before it.
    pub(super) fn use_bytes(
        &mut self,
        bytes: Range<usize>,
        work: WorkId,
        timeline: &Timeline,
        is_first: bool,
    ) -> Result<(), DeviceFault> {
        let mut at = bytes.start;
        while at < bytes.end {
            let missing = DeviceFault::NotMapped { call: "use", address: at };
            let (start, memory) =
                self.memory_around(at).filter(|(_, memory)| memory.is_usable()).ok_or(missing)?;
            let end = bytes.end.min(start + memory.bytes);
            memory.use_part(at - start..end - start, work, timeline, is_first).map_err(|earlier| {
                let [stream, other] = [work.queue, earlier].map(|queue| timeline.id(queue));
                DeviceFault::Unordered { address: at, stream, other }
            })?;
            at = end;
        }
        Ok(())
    }

    fn memory_around(&mut self, address: usize) -> Option<(usize, &mut PhysicalMemory)> {
        let region = self.regions.range_mut(..=address).next_back();
        let page = self.pages.range_mut(..=address).next_back();
        let mut around = region.into_iter().chain(page);
        around
            .find(|(start, memory)| address - **start < memory.bytes)
            .map(|(&start, memory)| (start, memory))
    }
}

impl PhysicalMemory {
    /// Returns `true` if it may be used and moved.
    fn is_usable(&self) -> bool {
        !self.is_lost && !self.is_leaked
    }

    /// Checks that the host knows all work on the memory to be done.
    fn is_quiet(&self, call: &'static str, address: usize, timeline: &Timeline) -> Result<(), DeviceFault> {
        match self.uses.conflict(timeline.order(), 0..self.bytes, AccessKind::Write, HOST_QUEUE) {
            Some((_, _, queue)) => Err(DeviceFault::StillInUse { call, address, stream: timeline.id(queue) }),
            None => Ok(()),
        }
    }

    /// Records work on a range. Returns the queue of earlier work that must be ordered before it but is not.
    ///
    /// The first work of a block is a write, which conflicts with all earlier work; more work on a block
    /// conflicts with nothing.
    fn use_part(
        &mut self,
        part: Range<usize>,
        work: WorkId,
        timeline: &Timeline,
        is_first: bool,
    ) -> Result<(), usize> {
        let kind = if is_first { AccessKind::Write } else { AccessKind::Read };
        match self.uses.access(timeline.order(), part, kind, work, work.queue) {
            Some((_, _, queue)) if is_first => Err(queue),
            _ => Ok(()),
        }
    }
}
