//! Blocks that were live on a device before the first event of a trace.
//!
//! A profile begins in the middle of a run. Blocks that it frees without having allocated them were live
//! before. Blocks that are never freed have no event, but each event has the number of live bytes after it
//! ([`CountedBytes::allocated`]). So the sum is known, and the remainder becomes one more block.

use super::super::event_collector::UnknownFree;
use crate::history::{BlockState, DeviceHistory, EventAction, HistoryWarning, SegmentBlock, SiteId};
use std::collections::BTreeMap;

/// The alignment of blocks.
const ALIGNMENT: u64 = 512;

/// The totals of a device after an event, as counted by the allocator. The values are untrusted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountedBytes {
    /// Live bytes.
    pub(super) allocated: Option<i64>,
    /// Reserved bytes.
    pub(super) reserved: Option<i64>,
}

/// The totals that follow from the counts of a device.
#[derive(Debug, Default)]
struct CountedTotals {
    /// Live bytes before the first event, and the event that they follow from.
    before: Option<(usize, i128)>,
    /// The peak of reserved bytes.
    reserved: Option<u64>,
}

/// Sets the unplaced blocks and the reserved bytes of a device. `unknown` are blocks that are freed and never
/// allocated; `counted` has one entry for each event.
pub(super) fn find(
    device: &mut DeviceHistory,
    unknown: &[UnknownFree],
    counted: &[CountedBytes],
    warnings: &mut Vec<HistoryWarning>,
) {
    device.unplaced = freed_later(device, unknown, warnings);
    let totals = CountedTotals::of(device, counted, warnings);
    device.counted_reserved = totals.reserved;
    let Some((event, before)) = totals.before else { return };
    let known: i128 = device.unplaced.iter().map(|block| i128::from(block.bytes)).sum();
    let rest = u64::try_from(before - known).ok();
    match rest.and_then(|rest| Some((rest, room(device, rest)?))) {
        Some((0, _)) => {}
        Some((bytes, address)) => {
            device.unplaced.push(live(address, bytes));
            device.unplaced.sort_by_key(|block| block.address);
        }
        None => HistoryWarning::TotalMisfit { device: device.device, event }.add_to(warnings),
    }
}

impl CountedTotals {
    fn of(device: &DeviceHistory, counted: &[CountedBytes], warnings: &mut Vec<HistoryWarning>) -> Self {
        let mut totals = Self::default();
        // A backend that does not count reports 0 for every event.
        let is_counted = |count: fn(&CountedBytes) -> Option<i64>| {
            counted.iter().any(|counted| count(counted).is_some_and(|bytes| bytes != 0))
        };
        let (has_allocated, has_reserved) = (is_counted(|one| one.allocated), is_counted(|one| one.reserved));
        let mut live = 0;
        for (index, (event, counted)) in device.events.iter().zip(counted).enumerate() {
            live += change(event.action, event.bytes);
            let mut fits = true;
            if let Some(allocated) = counted.allocated.filter(|_| has_allocated).map(i128::from) {
                let (_, before) = *totals.before.get_or_insert((index, allocated - live));
                fits = before + live == allocated;
                live = allocated - before;
            }
            if let Some(reserved) = counted.reserved.filter(|_| has_reserved) {
                match u64::try_from(reserved) {
                    Ok(bytes) if counted.allocated.is_none_or(|allocated| allocated <= reserved) => {
                        totals.reserved = totals.reserved.max(Some(bytes));
                    }
                    _ => fits = false,
                }
            }
            if !fits {
                HistoryWarning::TotalMisfit { device: device.device, event: index }.add_to(warnings);
            }
        }
        totals
    }
}

/// Returns the change of the live bytes by an event.
fn change(action: EventAction, bytes: u64) -> i128 {
    match action {
        EventAction::Allocate => bytes.into(),
        EventAction::FreeRequested => -i128::from(bytes),
        _ => 0,
    }
}

/// Returns the blocks that are freed and never allocated, unless they overlap.
fn freed_later(
    device: &DeviceHistory,
    unknown: &[UnknownFree],
    warnings: &mut Vec<HistoryWarning>,
) -> Vec<SegmentBlock> {
    let mut blocks: BTreeMap<u64, SegmentBlock> = BTreeMap::new();
    for &UnknownFree { event, address, bytes, first } in unknown {
        let end = address.checked_add(bytes);
        let before = end.and_then(|end| blocks.range(..end).next_back());
        let free = before.is_none_or(|(_, block)| block.address + block.bytes <= address);
        if !first || end.is_none() || !free {
            HistoryWarning::FreedUnknown { device: device.device, event, address }.add_to(warnings);
            continue;
        }
        blocks.insert(address, live(address, bytes));
    }
    blocks.into_values().collect()
}

fn live(address: u64, bytes: u64) -> SegmentBlock {
    SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site: SiteId::UNKNOWN }
}

/// Returns an unused address for `bytes` bytes: behind all known ones, or before them. `None` if there is no
/// room.
fn room(device: &DeviceHistory, bytes: u64) -> Option<u64> {
    let events = device.events.iter().filter(|event| change(event.action, event.bytes) != 0);
    let events = events.map(|event| (event.address, event.bytes));
    let blocks = events.chain(device.unplaced.iter().map(|block| (block.address, block.bytes)));
    let ends = blocks.map(|(address, bytes)| (address, address.saturating_add(bytes)));
    let taken = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    let (first, end) = taken.unwrap_or((0, ALIGNMENT));
    let behind = end.checked_next_multiple_of(ALIGNMENT).filter(|at| at.checked_add(bytes).is_some());
    behind.or_else(|| first.checked_sub(bytes).map(|at| at - at % ALIGNMENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{HistoryEvent, Workload};

    /// Events with the totals after them: live, reserved.
    type CountedEvent = (EventAction, u64, u64, Option<i64>, Option<i64>);

    fn found(counted: &[CountedEvent]) -> (DeviceHistory, Vec<HistoryWarning>) {
        let events =
            counted.iter().map(|&(action, address, bytes, ..)| HistoryEvent::new(action, address, bytes));
        let mut device = DeviceHistory { device: 3, events: events.collect(), ..DeviceHistory::default() };
        let counted: Vec<_> =
            counted.iter().map(|&(.., allocated, reserved)| CountedBytes { allocated, reserved }).collect();
        let mut warnings = Vec::new();
        let unknown = super::super::super::event_collector::check(&device, &mut warnings);
        find(&mut device, &unknown, &counted, &mut warnings);
        (device, warnings)
    }

    fn unplaced(device: &DeviceHistory) -> Vec<(u64, u64)> {
        device.unplaced.iter().map(|block| (block.address, block.bytes)).collect()
    }

    use EventAction::{Allocate, FreeRequested, OutOfMemory};

    #[test]
    fn uncovered_bytes_are_one_separate_block() {
        let (device, warnings) = found(&[
            (Allocate, 4096, 512, None, None),
            (FreeRequested, 9000, 1000, Some(5000), Some(1 << 20)),
            (OutOfMemory, 0, 1 << 40, Some(5000), Some(3 << 20)),
            (FreeRequested, 4096, 512, Some(4488), Some(2 << 20)),
        ]);
        assert_eq!(warnings, []);
        // 5488 bytes were live; 1000 of them are freed later.
        assert_eq!(unplaced(&device), [(9000, 1000), (10_240, 4488)]);
        assert_eq!(device.counted_reserved, Some(3 << 20));
        assert!(!device.has_segments());
        assert_eq!(Workload::of(&device).peak(), (6000, Some(0)));
    }

    #[test]
    fn without_totals_nothing_is_live_at_the_start() {
        for nothing in [None, Some(0)] {
            let (device, warnings) = found(&[
                (FreeRequested, 0, 512, nothing, nothing),
                (Allocate, 512, 512, nothing, nothing),
                (FreeRequested, 1024, 512, nothing, nothing),
            ]);
            assert_eq!((warnings, device.counted_reserved), (Vec::new(), None));
            assert_eq!(unplaced(&device), [(0, 512), (1024, 512)]);
        }
    }

    #[test]
    fn counts_that_do_not_fit_are_reported() {
        let misfit = |event| HistoryWarning::TotalMisfit { device: 3, event };
        // A jump, which later totals are relative to; more live than reserved bytes; negative reserved bytes.
        let (device, warnings) = found(&[
            (Allocate, 0, 512, Some(512), Some(4096)),
            (Allocate, 512, 512, Some(2048), Some(4096)),
            (Allocate, 1024, 512, Some(2560), Some(1024)),
            (Allocate, 2048, 512, Some(3072), Some(-1)),
            (Allocate, 4096, 512, Some(3584), None),
        ]);
        assert_eq!(warnings, [1, 2, 3].map(misfit));
        assert_eq!((unplaced(&device), device.counted_reserved), (vec![], Some(4096)));
        // Fewer bytes were live than are freed.
        let (device, warnings) = found(&[
            (FreeRequested, 0, 512, Some(0), None),
            (FreeRequested, 512, 512, Some(-512), None),
            (FreeRequested, 1024, 512, Some(i64::MIN), None),
        ]);
        assert_eq!(warnings, [misfit(2), misfit(0)]);
        assert_eq!(unplaced(&device), [(0, 512), (512, 512), (1024, 512)]);
    }

    #[test]
    fn an_address_is_found_or_a_warning_added() {
        let (end, far) = (u64::MAX - 511, i64::MAX);
        let one = |address| found(&[(Allocate, address, 511, Some(far), Some(far))]);
        assert_eq!(unplaced(&one(0).0), [(512, far.unsigned_abs() - 511)]);
        assert_eq!(unplaced(&one(end).0), [(1 << 63, far.unsigned_abs() - 511)]);
        let (device, warnings) = one(1 << 62);
        assert_eq!((unplaced(&device).len(), warnings.len()), (1, 0));
        let (device, warnings) =
            found(&[(Allocate, 0, 512, Some(far), None), (Allocate, end, u64::MAX, Some(far), None)]);
        assert_eq!(unplaced(&device), []);
        assert!(warnings.contains(&HistoryWarning::TotalMisfit { device: 3, event: 0 }), "{warnings:?}");
    }
}
