//! What a recorder knows of regions.
//!
//! A program gains most of its regions early, and a ring forgets what is old: blocks would be left that are in no region. So
//! events of regions, which are rare, are not in the rings but here, in order and behind a lock. There is room for so many;
//! then the oldest is let go, and what it did to the regions is kept: a history begins with the regions that were held
//! before the first event that is left.
//!
//! Who is set as observer again, or watches one allocator by two ways, is told of the same region again. What changes
//! nothing is not noted.

use super::record::Record;
use crate::history::{Action, BlockState, Rules, Segment, SegmentBlock, SiteId};
use orlop_core::StreamId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The events of regions, and what is held.
#[derive(Debug)]
pub(super) struct Regions {
    capacity: usize,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Before the first of the events.
    before: Held,
    events: VecDeque<Record>,
    /// How many events there were before these.
    gone: u64,
    now: Held,
}

impl Regions {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), log: Mutex::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event, if it changes anything. The calling thread is busy recording.
    pub(super) fn note(&self, record: Record) {
        let log = &mut *self.log();
        if !log.now.apply(&record) {
            return;
        }
        if log.events.len() >= self.capacity
            && let Some(oldest) = log.events.pop_front()
        {
            log.before.apply(&oldest);
            log.gone += 1;
        }
        log.events.push_back(record);
    }

    /// Appends all events, and gives the regions before the first, each with its device's number.
    pub(super) fn read(&self, records: &mut Vec<Record>) -> Vec<(u32, Segment)> {
        let log = self.log();
        records.extend(&log.events);
        log.before.segments()
    }

    /// Appends the events since that place, which is moved on, and says how many had been let go.
    pub(super) fn drain(&self, from: &mut u64, records: &mut Vec<Record>) -> u64 {
        let log = self.log();
        let lost = log.gone.saturating_sub(*from);
        let skipped = usize::try_from(from.saturating_sub(log.gone)).unwrap_or(usize::MAX);
        records.extend(log.events.iter().skip(skipped));
        *from = log.gone + log.events.len() as u64;
        lost
    }

    /// How many events after that place were let go.
    pub(super) fn lost(&self, from: u64) -> u64 {
        self.log().gone.saturating_sub(from)
    }
}

/// Regions by device and address; they do not overlap.
#[derive(Debug, Default)]
struct Held {
    regions: BTreeMap<(u32, u64), Region>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    bytes: u64,
    stream: u64,
    /// Whether it consists of pages.
    mapped: bool,
}

impl Held {
    /// Does what an event says; false if that changes nothing.
    fn apply(&mut self, record: &Record) -> bool {
        let &Record { device, address, bytes, stream, action, .. } = record;
        let Some(end) = address.checked_add(bytes).filter(|&end| end > address) else { return false };
        let mapped = matches!(action, Action::Mapped);
        match action {
            Action::RegionGained | Action::Mapped => {
                if self.holds(device, address, end) {
                    return false;
                }
                self.carve(device, address, end);
                self.add(device, address, Region { bytes, stream, mapped });
                true
            }
            _ => self.carve(device, address, end),
        }
    }

    /// The last region that begins before an address.
    fn last_before(&self, device: u32, address: u64) -> Option<(u64, Region)> {
        let mut below = self.regions.range((device, 0)..(device, address));
        below.next_back().map(|(&(_, start), &region)| (start, region))
    }

    /// Whether all of a range is held.
    fn holds(&self, device: u32, address: u64, end: u64) -> bool {
        let mut covered = end;
        while covered > address {
            match self.last_before(device, covered) {
                Some((start, region)) if start + region.bytes >= covered => covered = start,
                _ => return false,
            }
        }
        true
    }

    /// Takes a range out; false if nothing was there.
    fn carve(&mut self, device: u32, address: u64, end: u64) -> bool {
        let mut found = false;
        while let Some((start, region)) = self.last_before(device, end) {
            let stop = start + region.bytes;
            if stop <= address {
                break;
            }
            found = true;
            self.regions.remove(&(device, start));
            if start < address {
                self.regions.insert((device, start), Region { bytes: address - start, ..region });
            }
            if stop > end {
                self.regions.insert((device, end), Region { bytes: stop - end, ..region });
            }
        }
        found
    }

    /// Adds a region where none is. Pages beside others of the stream are one region with them.
    fn add(&mut self, device: u32, mut address: u64, mut region: Region) {
        let is_like = |other: &Region| other.mapped && region.mapped && other.stream == region.stream;
        let end = address + region.bytes;
        let behind = self.regions.get(&(device, end)).copied().filter(is_like);
        let ahead = self.last_before(device, address);
        let ahead = ahead.filter(|(start, other)| start + other.bytes == address && is_like(other));
        if let Some(behind) = behind {
            self.regions.remove(&(device, end));
            region.bytes += behind.bytes;
        }
        if let Some((start, ahead)) = ahead {
            region.bytes += ahead.bytes;
            address = start;
        }
        self.regions.insert((device, address), region);
    }

    /// As segments, free all through: of blocks nothing is known here.
    fn segments(&self) -> Vec<(u32, Segment)> {
        let rules = Rules::parse("");
        let segment = |(&(device, address), region): (&(u32, u64), &Region)| {
            let &Region { bytes, stream, mapped } = region;
            let small = if mapped { rules.is_small_page(bytes) } else { rules.is_small_region(bytes) };
            let site = SiteId::UNKNOWN;
            let blocks = vec![SegmentBlock { address, bytes, requested: 0, state: BlockState::Free, site }];
            let stream = StreamId::new(stream);
            (
                device,
                Segment { address, bytes, stream, small, expandable: mapped, pool: (0, 0), site, blocks },
            )
        };
        self.regions.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::Device;

    fn record(action: Action, address: u64, bytes: u64) -> Record {
        Record { address, bytes, ..Record::mark(0, action, Device::cuda(0), 1) }
    }

    fn held(regions: &Regions) -> Vec<(u64, u64)> {
        let held = regions.read(&mut Vec::new());
        held.iter().map(|(_, segment)| (segment.address, segment.bytes)).collect()
    }

    #[test]
    fn what_is_let_go_is_what_a_history_begins_with() {
        let regions = Regions::new(1);
        let steps = [
            (Action::RegionGained, 100, 50),
            (Action::Mapped, 200, 10),
            (Action::Mapped, 220, 10),
            (Action::Mapped, 210, 10),
            (Action::Unmapped, 205, 5),
            (Action::RegionLost, 100, 50),
        ];
        for (action, address, bytes) in steps {
            regions.note(record(action, address, bytes));
        }
        assert_eq!(held(&regions), [(100, 50), (200, 5), (210, 20)]);
        let mut records = Vec::new();
        let mut from = 0;
        assert_eq!((regions.lost(0), regions.drain(&mut from, &mut records)), (5, 5));
        assert_eq!((records.len(), from, regions.drain(&mut from, &mut records)), (1, 6, 0));
        assert_eq!(records[0].action, Action::RegionLost);
    }

    #[test]
    fn what_is_known_is_not_noted() {
        let regions = Regions::new(100);
        let steps = [
            (Action::RegionGained, 100, 50, 1),
            (Action::RegionGained, 100, 50, 1),
            (Action::RegionGained, 120, 30, 1),
            (Action::RegionLost, 150, 50, 1),
            (Action::RegionLost, 100, 50, 2),
            (Action::RegionLost, 100, 50, 2),
            (Action::RegionGained, u64::MAX, 50, 2),
            (Action::RegionGained, 100, 0, 2),
        ];
        for (action, address, bytes, noted) in steps {
            regions.note(record(action, address, bytes));
            let mut records = Vec::new();
            regions.read(&mut records);
            assert_eq!(records.len(), noted, "{action:?} {address}");
        }
    }
}
