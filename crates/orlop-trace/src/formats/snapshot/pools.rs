//! The private pools of events. PyTorch records them from 2.13 on; before, only the segments at the end have
//! them.

use crate::history::{DeviceHistory, EventAction, EventDetail, TextId};
use std::collections::BTreeMap;

/// A segment's end, and its private pool; (0, 0) is the default pool.
type SegmentEnd = (u64, (u64, u64));

/// Finds the private pools of events that have none recorded: the pool of the segment that they are in, if it
/// exists at the end of the recording. Segments that were released before are taken for the default pool's.
pub(super) fn infer(device: &mut DeviceHistory) {
    let is_recorded = device.details.iter().any(|detail| detail.pool != (0, 0));
    if is_recorded || device.end.iter().all(|segment| segment.pool == (0, 0)) {
        return;
    }
    let mut segments: BTreeMap<u64, SegmentEnd> = BTreeMap::new();
    for segment in &device.end {
        segments.insert(segment.address, (segment.address.saturating_add(segment.bytes), segment.pool));
    }
    let mut found = Vec::new();
    // Readers refuse histories of 2^32 events.
    let count = u32::try_from(device.events.len()).unwrap_or(u32::MAX);
    for (index, event) in (0..count).zip(&device.events).rev() {
        let around = segments.range(..=event.address).next_back().map(|(&start, &segment)| (start, segment));
        let pool = around.filter(|(_, (end, _))| event.address < *end).map_or((0, 0), |(_, (_, pool))| pool);
        match event.action {
            EventAction::Allocate | EventAction::Mapped if pool != (0, 0) => found.push((index, pool)),
            // Before this event, the segment did not exist.
            EventAction::RegionReserved => {
                if pool != (0, 0) {
                    found.push((index, pool));
                }
                segments.remove(&event.address);
            }
            _ => {}
        }
    }
    let mut recorded: BTreeMap<u32, EventDetail> =
        std::mem::take(&mut device.details).into_iter().map(|detail| (detail.event, detail)).collect();
    for (event, pool) in found {
        let unknown = EventDetail { event, context: TextId::NONE, pool };
        recorded.entry(event).or_insert(unknown).pool = pool;
    }
    device.details = recorded.into_values().collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{HistoryEvent, Segment, SiteId};
    use orlop_core::StreamId;

    #[test]
    fn events_are_in_the_pool_of_their_segment_while_it_exists() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, RegionReleased, RegionReserved};
        let event = |action, address| HistoryEvent::new(action, address, 1024);
        let mut device = DeviceHistory::from_events(vec![
            // A segment of the default pool at the address that a private one has later.
            event(RegionReserved, 4096),
            event(Allocate, 4096),
            event(FreeRequested, 4096),
            event(FreeCompleted, 4096),
            event(RegionReleased, 4096),
            event(RegionReserved, 4096),
            event(Allocate, 4096),
            event(RegionReserved, 8192),
            event(Allocate, 8192),
        ]);
        let segment = |address, pool| Segment {
            address,
            bytes: 1024,
            stream: StreamId::from_raw(0),
            small: true,
            expandable: false,
            pool,
            site: SiteId::UNKNOWN,
            blocks: Vec::new(),
        };
        device.end = vec![segment(4096, (1, 0)), segment(8192, (0, 0))];
        infer(&mut device);
        let pools: Vec<_> = (0..9).map(|event| device.pool(event)).collect();
        assert_eq!(pools[..5], [(0, 0); 5]);
        assert_eq!(pools[5..], [(1, 0), (1, 0), (0, 0), (0, 0)]);
    }
}
