//! The regions that are reserved at an instant.

use super::record::EventRecord;
use crate::history::{
    EventAction, Segment, SegmentBlock, SegmentRange, SiteId, SizeRules, carve, merge_adjacent,
};
use orlop_core::MemoryKind;
use std::collections::BTreeMap;

/// Regions by device and address; they do not overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct RegionTable {
    devices: BTreeMap<u32, BTreeMap<u64, SegmentRange>>,
}

impl RegionTable {
    /// Applies an event; returns `false` if it changes nothing.
    pub(super) fn apply(&mut self, record: &EventRecord, rules: &SizeRules) -> bool {
        let &EventRecord { device, address, bytes, action, .. } = record;
        if !self.would_change(record) {
            return false;
        }
        carve(self.regions_mut(device), address, address + bytes, |region| region);
        if record.action.adds_region() {
            let mapped = action == EventAction::Mapped;
            let small = if mapped { rules.is_small_page(bytes) } else { rules.is_small_segment(bytes) };
            let (stream, pool, site) = (record.stream(), (0, 0), SiteId::UNKNOWN);
            let region = SegmentRange { bytes, stream, small, expandable: mapped, pool, site };
            let regions = self.regions_mut(device);
            regions.insert(address, region);
            merge_adjacent(regions, address);
        }
        true
    }

    /// Returns `true` if an event would change anything. Events without bytes or beyond the address space do
    /// not.
    pub(super) fn would_change(&self, record: &EventRecord) -> bool {
        let &EventRecord { device, address, bytes, .. } = record;
        match address.checked_add(bytes).filter(|&end| end > address) {
            Some(end) if record.action.adds_region() => !self.is_reserved(device, address, end),
            Some(end) => {
                self.last_before(device, end).is_some_and(|(start, last)| start + last.bytes > address)
            }
            None => false,
        }
    }

    /// Returns the last region that begins before an address.
    fn last_before(&self, device: u32, address: u64) -> Option<(u64, SegmentRange)> {
        let mut below = self.devices.get(&device)?.range(..address);
        below.next_back().map(|(&start, &region)| (start, region))
    }

    fn regions_mut(&mut self, device: u32) -> &mut BTreeMap<u64, SegmentRange> {
        self.devices.entry(device).or_default()
    }

    /// Returns all regions in order of device and address.
    fn iter(&self) -> impl Iterator<Item = (u32, u64, SegmentRange)> {
        self.devices.iter().flat_map(|(&device, regions)| {
            regions.iter().map(move |(&address, &region)| (device, address, region))
        })
    }

    /// Returns `true` if all of a range is reserved.
    fn is_reserved(&self, device: u32, address: u64, end: u64) -> bool {
        let mut covered = end;
        while covered > address {
            match self.last_before(device, covered) {
                Some((start, region)) if start + region.bytes >= covered => covered = start,
                _ => return false,
            }
        }
        true
    }

    /// Returns the ranges that are reserved here and not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        for (device, address, region) in other.iter() {
            carve(rest.regions_mut(device), address, address + region.bytes, |region| region);
        }
        rest
    }

    /// Returns records that reserve or release all regions.
    pub(super) fn records(&self, ticks: u64, reserved: bool) -> impl Iterator<Item = EventRecord> {
        self.iter().map(move |(device, address, SegmentRange { bytes, stream, expandable, .. })| {
            let action = match (expandable, reserved) {
                (false, true) => EventAction::RegionReserved,
                (false, false) => EventAction::RegionReleased,
                (true, true) => EventAction::Mapped,
                (true, false) => EventAction::Unmapped,
            };
            let kind = MemoryKind::Default;
            EventRecord {
                ticks,
                address,
                bytes,
                stream: stream.raw(),
                text: 0,
                site: 0,
                thread: 0,
                device,
                action,
                kind,
            }
        })
    }

    /// Returns the regions as free segments with the numbers of their devices. Their blocks are unknown here.
    pub(super) fn segments(&self) -> Vec<(u32, Segment)> {
        let segment = |(device, address, region): (u32, u64, SegmentRange)| {
            let blocks = vec![SegmentBlock::free(address, region.bytes)];
            (device, region.with_blocks(address, blocks))
        };
        self.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::Device;

    const MIB: u64 = 1 << 20;

    fn table(steps: &[(EventAction, u64, u64)]) -> RegionTable {
        let (mut table, rules) = (RegionTable::default(), SizeRules::parse(""));
        for &(action, address, bytes) in steps {
            table.apply(
                &EventRecord { address, bytes, ..EventRecord::mark(0, action, Device::cuda(0), 1) },
                &rules,
            );
        }
        table
    }

    #[test]
    fn pages_that_are_joined_keep_their_size_class() {
        let small: Vec<_> = (0..12).map(|page| (EventAction::Mapped, page * 2 * MIB, 2 * MIB)).collect();
        let large = [(EventAction::Mapped, 0, 20 * MIB), (EventAction::Unmapped, 2 * MIB, 18 * MIB)];
        for (steps, bytes, is_small) in [(&small[..], 24 * MIB, true), (&large[..], 2 * MIB, false)] {
            let segments = table(steps).segments();
            let [(0, segment)] = &segments[..] else { panic!("one segment: {segments:?}") };
            assert_eq!((segment.bytes, segment.small), (bytes, is_small));
        }
    }

    #[test]
    fn a_difference_becomes_records() {
        let before = table(&[(EventAction::RegionReserved, 100, 50), (EventAction::Mapped, 200, 10)]);
        let after = table(&[(EventAction::Mapped, 205, 10), (EventAction::RegionReserved, 300, 10)]);
        let fields = |table: RegionTable, reserved: bool| -> Vec<_> {
            table.records(7, reserved).map(|record| (record.action, record.address, record.bytes)).collect()
        };
        assert_eq!(
            fields(before.without(&after), false),
            [(EventAction::RegionReleased, 100, 50), (EventAction::Unmapped, 200, 5)]
        );
        assert_eq!(
            fields(after.without(&before), true),
            [(EventAction::Mapped, 210, 5), (EventAction::RegionReserved, 300, 10)]
        );
    }
}
