//! Extents: the reserved address ranges over time, as regions and as pages of expandable regions.
//!
//! An extent is a range of addresses from the instant at which it is reserved to the instant at which it is
//! released. Unmapping pages from the middle of an extent leaves two.

use super::block_lifetimes::instant;
use orlop_core::StreamId;
use orlop_trace::history::{AddressRange, DeviceHistory, EventAction, Segment, SiteId, carve};
use std::collections::{BTreeMap, HashMap};

/// A range of addresses that was reserved for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The first instant at which it is reserved.
    pub(super) born: u64,
    /// The first instant at which it is released.
    pub(super) released: u64,
    pub(super) stream: StreamId,
    pub(super) site: SiteId,
    pub(super) class: ExtentClass,
    /// The index of the private pool in the list of pools; 0 is the default pool.
    pub(super) pool: u64,
}

impl AddressRange for Extent {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn part(&self, address: u64, bytes: u64) -> Self {
        Self { address, bytes, ..*self }
    }
}

/// The class of requests that an extent serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtentClass {
    Unknown,
    Large,
    Small,
    Expandable,
    ExpandableSmall,
}

/// All extents, and the pools that they refer to.
#[derive(Debug, Default)]
pub(super) struct Extents {
    pub(super) list: Vec<Extent>,
    pub(super) pools: Vec<(u64, u64)>,
    numbers: HashMap<(u64, u64), u64>,
    reserved: BTreeMap<u64, Extent>,
}

impl Extents {
    /// Computes the extents of a device.
    pub(super) fn of(history: &DeviceHistory) -> Self {
        let mut extents = Self::default();
        extents.pool((0, 0));
        for segment in &history.start {
            let extent = extents.segment(segment);
            extents.reserve(extent);
        }
        for (index, event) in history.events.iter().enumerate() {
            let now = instant(index);
            match event.action {
                EventAction::RegionReserved | EventAction::Mapped => {
                    let mapped = event.action == EventAction::Mapped;
                    let extent = Extent {
                        address: event.address,
                        bytes: event.bytes,
                        born: now,
                        released: u64::MAX,
                        stream: event.stream,
                        site: event.site,
                        class: if mapped { ExtentClass::Expandable } else { ExtentClass::Unknown },
                        pool: extents.pool(history.pool(index)),
                    };
                    extents.reserve(extent);
                }
                EventAction::RegionReleased | EventAction::Unmapped => {
                    extents.release(event.address, event.bytes, now);
                }
                _ => {}
            }
        }
        let reserved = std::mem::take(&mut extents.reserved);
        extents.list.extend(reserved.into_values());
        extents.set_classes(&history.end);
        extents.list.sort_by_key(|extent| (extent.born, extent.address));
        extents
    }

    fn segment(&mut self, segment: &Segment) -> Extent {
        Extent {
            address: segment.address,
            bytes: segment.bytes,
            born: 0,
            released: u64::MAX,
            stream: segment.stream,
            site: segment.site,
            class: class(segment),
            pool: self.pool(segment.pool),
        }
    }

    fn pool(&mut self, pool: (u64, u64)) -> u64 {
        let next = u64::try_from(self.pools.len()).unwrap_or(0);
        *self.numbers.entry(pool).or_insert_with(|| {
            self.pools.push(pool);
            next
        })
    }

    fn reserve(&mut self, extent: Extent) {
        if extent.bytes == 0 {
            return;
        }
        // A range that is reserved twice was released in between, unrecorded.
        self.release(extent.address, extent.bytes, extent.born);
        self.reserved.insert(extent.address, extent);
    }

    fn release(&mut self, address: u64, bytes: u64, now: u64) {
        let list = &mut self.list;
        carve(&mut self.reserved, address, address.saturating_add(bytes), |extent| {
            if extent.born < now {
                list.push(Extent { released: now, ..extent });
            }
            Extent { born: now, ..extent }
        });
    }

    /// Sets the class and pool from the segments at the end, because events do not have them.
    fn set_classes(&mut self, segments: &[Segment]) {
        let ends: BTreeMap<u64, &Segment> =
            segments.iter().map(|segment| (segment.address, segment)).collect();
        let mut list = std::mem::take(&mut self.list);
        for extent in list.iter_mut().filter(|extent| extent.born > 0 && extent.released == u64::MAX) {
            let around = ends.range(..=extent.address).next_back().map(|(_, &segment)| segment);
            let inside = |segment: &&Segment| extent.address - segment.address < segment.bytes;
            if let Some(segment) = around.filter(inside) {
                (extent.class, extent.pool) = (class(segment), self.pool(segment.pool));
            }
        }
        self.list = list;
    }
}

fn class(segment: &Segment) -> ExtentClass {
    match (segment.expandable, segment.small) {
        (true, true) => ExtentClass::ExpandableSmall,
        (true, false) => ExtentClass::Expandable,
        (false, true) => ExtentClass::Small,
        (false, false) => ExtentClass::Large,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{block, segment};
    use orlop_trace::history::{BlockState, HistoryEvent};

    fn spans(events: Vec<HistoryEvent>, start: Vec<Segment>) -> Vec<(u64, u64, u64, u64)> {
        let mut history = DeviceHistory::from_events(events);
        history.start = start;
        let extents = Extents::of(&history);
        extents
            .list
            .iter()
            .map(|extent| (extent.address, extent.bytes, extent.born, extent.released))
            .collect()
    }

    #[test]
    fn regions_come_and_go() {
        let events = vec![
            HistoryEvent::new(EventAction::RegionReserved, 100, 10),
            HistoryEvent::new(EventAction::RegionReleased, 0, 50),
        ];
        let start = segment(0, &[block(0, 50, BlockState::Free)]);
        assert_eq!(spans(events, vec![start]), [(0, 50, 0, 2), (100, 10, 1, u64::MAX)]);
    }

    #[test]
    fn pages_unmapped_in_the_middle_leave_two_extents() {
        let events = vec![
            HistoryEvent::new(EventAction::Mapped, 0, 100),
            HistoryEvent::new(EventAction::Unmapped, 40, 20),
        ];
        assert_eq!(spans(events, vec![]), [(0, 100, 1, 2), (0, 40, 2, u64::MAX), (60, 40, 2, u64::MAX)]);
    }

    #[test]
    fn a_reservation_over_another_replaces_it() {
        let events = vec![
            HistoryEvent::new(EventAction::RegionReserved, 0, 64),
            HistoryEvent::new(EventAction::RegionReserved, 32, u64::MAX),
        ];
        assert_eq!(spans(events, vec![]), [(0, 64, 1, 2), (0, 32, 2, u64::MAX), (32, u64::MAX, 2, u64::MAX)]);
    }
}
