//! The regions that are reserved at one instant.

use super::record::EventRecord;
use crate::history::{
    AddressRange, BlockState, EventAction, Segment, SegmentBlock, SiteId, SizeRules, carve,
};
use orlop_core::{MemoryKind, StreamId};
use std::collections::BTreeMap;

/// Regions by device and address; they do not overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct RegionTable {
    devices: BTreeMap<u32, BTreeMap<u64, RecordedRegion>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RecordedRegion {
    bytes: u64,
    stream: u64,
    /// Whether it consists of pages.
    mapped: bool,
    /// Whether it serves small requests. The length of what came tells, and that is forgotten when pages are
    /// joined.
    small: bool,
}

impl AddressRange for RecordedRegion {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn part(&self, _: u64, bytes: u64) -> Self {
        Self { bytes, ..*self }
    }
}

impl RegionTable {
    /// Does what an event says; false if that changes nothing.
    pub(super) fn apply(&mut self, record: &EventRecord, rules: &SizeRules) -> bool {
        let &EventRecord { device, address, bytes, stream, action, .. } = record;
        if !self.would_change(record) {
            return false;
        }
        carve(self.regions_mut(device), address, address + bytes, |region| region);
        if is_gain(record) {
            let mapped = action == EventAction::Mapped;
            let small = if mapped { rules.is_small_page(bytes) } else { rules.is_small_segment(bytes) };
            self.add(device, address, RecordedRegion { bytes, stream, mapped, small });
        }
        true
    }

    /// Whether an event would change anything. What has no bytes, or goes beyond all addresses, would not.
    pub(super) fn would_change(&self, record: &EventRecord) -> bool {
        let &EventRecord { device, address, bytes, .. } = record;
        match address.checked_add(bytes).filter(|&end| end > address) {
            Some(end) if is_gain(record) => !self.holds(device, address, end),
            Some(end) => {
                self.last_before(device, end).is_some_and(|(start, last)| start + last.bytes > address)
            }
            None => false,
        }
    }

    /// The last region that begins before an address.
    fn last_before(&self, device: u32, address: u64) -> Option<(u64, RecordedRegion)> {
        let mut below = self.devices.get(&device)?.range(..address);
        below.next_back().map(|(&start, &region)| (start, region))
    }

    fn regions_mut(&mut self, device: u32) -> &mut BTreeMap<u64, RecordedRegion> {
        self.devices.entry(device).or_default()
    }

    /// All regions, in order of device and address.
    fn iter(&self) -> impl Iterator<Item = (u32, u64, RecordedRegion)> {
        self.devices.iter().flat_map(|(&device, regions)| {
            regions.iter().map(move |(&address, &region)| (device, address, region))
        })
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

    /// Adds a region where none is. Pages beside others of the stream are one region with them.
    fn add(&mut self, device: u32, mut address: u64, mut region: RecordedRegion) {
        let is_like = |other: &RecordedRegion| other.mapped && region.mapped && other.stream == region.stream;
        let end = address + region.bytes;
        let ahead = self.last_before(device, address);
        let regions = self.regions_mut(device);
        let behind = regions.get(&end).copied().filter(is_like);
        let ahead = ahead.filter(|(start, other)| start + other.bytes == address && is_like(other));
        if let Some(behind) = behind {
            regions.remove(&end);
            region.bytes += behind.bytes;
        }
        if let Some((start, ahead)) = ahead {
            region = RecordedRegion { bytes: region.bytes + ahead.bytes, ..ahead };
            address = start;
        }
        regions.insert(address, region);
    }

    /// What is held here and not there.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        for (device, address, region) in other.iter() {
            carve(rest.regions_mut(device), address, address + region.bytes, |region| region);
        }
        rest
    }

    /// Records of all of it, coming or going.
    pub(super) fn records(&self, ticks: u64, comes: bool) -> impl Iterator<Item = EventRecord> {
        self.iter().map(move |(device, address, RecordedRegion { bytes, stream, mapped, .. })| {
            let action = match (mapped, comes) {
                (false, true) => EventAction::RegionReserved,
                (false, false) => EventAction::RegionReleased,
                (true, true) => EventAction::Mapped,
                (true, false) => EventAction::Unmapped,
            };
            let kind = MemoryKind::Default;
            EventRecord { ticks, address, bytes, stream, text: 0, site: 0, thread: 0, device, action, kind }
        })
    }

    /// As segments with their devices' numbers, free all through: of blocks nothing is known here.
    pub(super) fn segments(&self) -> Vec<(u32, Segment)> {
        let segment = |(device, address, region)| {
            let RecordedRegion { bytes, stream, mapped, small } = region;
            let site = SiteId::UNKNOWN;
            let blocks = vec![SegmentBlock { address, bytes, requested: 0, state: BlockState::Free, site }];
            let stream = StreamId::new(stream);
            (
                device,
                Segment { address, bytes, stream, small, expandable: mapped, pool: (0, 0), site, blocks },
            )
        };
        self.iter().map(segment).collect()
    }
}

/// Whether a region comes.
pub(super) fn is_gain(record: &EventRecord) -> bool {
    matches!(record.action, EventAction::RegionReserved | EventAction::Mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::Device;

    const MIB: u64 = 1 << 20;

    fn held(steps: &[(EventAction, u64, u64)]) -> RegionTable {
        let (mut held, rules) = (RegionTable::default(), SizeRules::parse(""));
        for &(action, address, bytes) in steps {
            held.apply(
                &EventRecord { address, bytes, ..EventRecord::mark(0, action, Device::cuda(0), 1) },
                &rules,
            );
        }
        held
    }

    #[test]
    fn pages_that_are_joined_keep_their_size_class() {
        let small: Vec<_> = (0..12).map(|page| (EventAction::Mapped, page * 2 * MIB, 2 * MIB)).collect();
        let large = [(EventAction::Mapped, 0, 20 * MIB), (EventAction::Unmapped, 2 * MIB, 18 * MIB)];
        for (steps, bytes, is_small) in [(&small[..], 24 * MIB, true), (&large[..], 2 * MIB, false)] {
            let segments = held(steps).segments();
            let [(0, segment)] = &segments[..] else { panic!("one segment: {segments:?}") };
            assert_eq!((segment.bytes, segment.small), (bytes, is_small));
        }
    }

    #[test]
    fn a_difference_is_told_in_records() {
        let before = held(&[(EventAction::RegionReserved, 100, 50), (EventAction::Mapped, 200, 10)]);
        let after = held(&[(EventAction::Mapped, 205, 10), (EventAction::RegionReserved, 300, 10)]);
        let told = |held: RegionTable, comes: bool| -> Vec<_> {
            held.records(7, comes).map(|record| (record.action, record.address, record.bytes)).collect()
        };
        assert_eq!(
            told(before.without(&after), false),
            [(EventAction::RegionReleased, 100, 50), (EventAction::Unmapped, 200, 5)]
        );
        assert_eq!(
            told(after.without(&before), true),
            [(EventAction::Mapped, 210, 5), (EventAction::RegionReserved, 300, 10)]
        );
    }
}
