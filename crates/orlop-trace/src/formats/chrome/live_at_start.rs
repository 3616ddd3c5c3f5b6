//! Blocks that were live on a device before the first event of a trace.
//!
//! A profile begins in the midst of a run. Blocks that are freed in it and not allocated lived before. Those
//! that lived before and are not freed either have no event, but each event tells how many bytes live after
//! it ([`CountedBytes::allocated`]). So the sum of all is known, and what is left of it is one block more.

use super::super::event_collector::{UnknownFree, Warnings};
use crate::history::{BlockState, DeviceHistory, EventAction, HistoryWarning, SegmentBlock, SiteId};
use std::collections::BTreeMap;

/// Blocks begin at multiples of this.
const ALIGNMENT: u64 = 512;

/// Bytes of a device after an event, as the allocator counted them. A file may say anything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountedBytes {
    /// Those that live.
    pub(super) allocated: Option<i64>,
    /// Those that the allocator holds.
    pub(super) reserved: Option<i64>,
}

/// The totals that follow from a device's counts.
#[derive(Debug, Default)]
struct CountedTotals {
    /// Bytes that lived before the first event, and the event that says so.
    before: Option<(usize, i128)>,
    /// The most that the allocator held.
    reserved: Option<u64>,
}

/// Adds to a device what lived before, and the most that was held: `unknown` was freed and not allocated,
/// `counted` is there for each event.
pub(super) fn find(
    device: &mut DeviceHistory,
    unknown: &[UnknownFree],
    counted: &[CountedBytes],
    warnings: &mut Warnings,
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
        None => warnings.push(HistoryWarning::TotalMisfit { device: device.device, event }),
    }
}

impl CountedTotals {
    fn of(device: &DeviceHistory, counted: &[CountedBytes], warnings: &mut Warnings) -> Self {
        let mut totals = Self::default();
        // What a backend does not count is 0 each time.
        let told = |count: fn(&CountedBytes) -> Option<i64>| {
            counted.iter().any(|counted| count(counted).is_some_and(|bytes| bytes != 0))
        };
        let (allocated_told, reserved_told) = (told(|one| one.allocated), told(|one| one.reserved));
        let mut live = 0;
        for (place, (event, counted)) in device.events.iter().zip(counted).enumerate() {
            live += change(event.action, event.bytes);
            let mut fits = true;
            if let Some(allocated) = counted.allocated.filter(|_| allocated_told).map(i128::from) {
                let (_, before) = *totals.before.get_or_insert((place, allocated - live));
                fits = before + live == allocated;
                live = allocated - before;
            }
            if let Some(reserved) = counted.reserved.filter(|_| reserved_told) {
                match u64::try_from(reserved) {
                    Ok(bytes) if counted.allocated.is_none_or(|allocated| allocated <= reserved) => {
                        totals.reserved = totals.reserved.max(Some(bytes));
                    }
                    _ => fits = false,
                }
            }
            if !fits {
                warnings.push(HistoryWarning::TotalMisfit { device: device.device, event: place });
            }
        }
        totals
    }
}

/// What an event adds to the bytes that live.
fn change(action: EventAction, bytes: u64) -> i128 {
    match action {
        EventAction::Allocate => bytes.into(),
        EventAction::FreeRequested => -i128::from(bytes),
        _ => 0,
    }
}

/// Blocks that were freed and not allocated, unless they contradict each other.
fn freed_later(
    device: &DeviceHistory,
    unknown: &[UnknownFree],
    warnings: &mut Warnings,
) -> Vec<SegmentBlock> {
    let mut held: BTreeMap<u64, SegmentBlock> = BTreeMap::new();
    for &UnknownFree { event, address, bytes, first } in unknown {
        let end = address.checked_add(bytes);
        let before = end.and_then(|end| held.range(..end).next_back());
        let free = before.is_none_or(|(_, block)| block.address + block.bytes <= address);
        if !first || end.is_none() || !free {
            warnings.push(HistoryWarning::FreedUnknown { device: device.device, event, address });
            continue;
        }
        held.insert(address, live(address, bytes));
    }
    held.into_values().collect()
}

fn live(address: u64, bytes: u64) -> SegmentBlock {
    SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site: SiteId::UNKNOWN }
}

/// An address for so many bytes beside all that has one: behind it, or before it. `None` if neither has room.
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

    /// Events with what is counted after them: live, held.
    type Told = (EventAction, u64, u64, Option<i64>, Option<i64>);

    fn found(told: &[Told]) -> (DeviceHistory, Vec<HistoryWarning>) {
        let events =
            told.iter().map(|&(action, address, bytes, ..)| HistoryEvent::new(action, address, bytes));
        let mut device = DeviceHistory { device: 3, events: events.collect(), ..DeviceHistory::default() };
        let counted: Vec<_> =
            told.iter().map(|&(.., allocated, reserved)| CountedBytes { allocated, reserved }).collect();
        let mut warnings = Warnings::default();
        let unknown = super::super::super::event_collector::check(&device, &mut warnings);
        find(&mut device, &unknown, &counted, &mut warnings);
        (device, warnings.finish())
    }

    fn held(device: &DeviceHistory) -> Vec<(u64, u64)> {
        device.unplaced.iter().map(|block| (block.address, block.bytes)).collect()
    }

    use EventAction::{Allocate, FreeRequested, OutOfMemory};

    #[test]
    fn what_no_event_names_is_one_block_beside_the_others() {
        let (device, warnings) = found(&[
            (Allocate, 4096, 512, None, None),
            (FreeRequested, 9000, 1000, Some(5000), Some(1 << 20)),
            (OutOfMemory, 0, 1 << 40, Some(5000), Some(3 << 20)),
            (FreeRequested, 4096, 512, Some(4488), Some(2 << 20)),
        ]);
        assert_eq!(warnings, []);
        // 5488 lived, 1000 of them are freed later.
        assert_eq!(held(&device), [(9000, 1000), (10_240, 4488)]);
        assert_eq!(device.counted_reserved, Some(3 << 20));
        assert!(!device.has_segments());
        assert_eq!(Workload::of(&device).peak(), (6000, Some(0)));
    }

    #[test]
    fn what_is_not_counted_is_not_known() {
        for nothing in [None, Some(0)] {
            let (device, warnings) = found(&[
                (FreeRequested, 0, 512, nothing, nothing),
                (Allocate, 512, 512, nothing, nothing),
                (FreeRequested, 1024, 512, nothing, nothing),
            ]);
            assert_eq!((warnings, device.counted_reserved), (Vec::new(), None));
            assert_eq!(held(&device), [(0, 512), (1024, 512)]);
        }
    }

    #[test]
    fn counts_that_do_not_fit_are_told() {
        let misfit = |event| HistoryWarning::TotalMisfit { device: 3, event };
        // It jumps, and goes on from there; more lives than is held, or less than nothing is held.
        let (device, warnings) = found(&[
            (Allocate, 0, 512, Some(512), Some(4096)),
            (Allocate, 512, 512, Some(2048), Some(4096)),
            (Allocate, 1024, 512, Some(2560), Some(1024)),
            (Allocate, 2048, 512, Some(3072), Some(-1)),
            (Allocate, 4096, 512, Some(3584), None),
        ]);
        assert_eq!(warnings, [1, 2, 3].map(misfit));
        assert_eq!((held(&device), device.counted_reserved), (vec![], Some(4096)));
        // Less lived than is freed.
        let (device, warnings) = found(&[
            (FreeRequested, 0, 512, Some(0), None),
            (FreeRequested, 512, 512, Some(-512), None),
            (FreeRequested, 1024, 512, Some(i64::MIN), None),
        ]);
        assert_eq!(warnings, [misfit(2), misfit(0)]);
        assert_eq!(held(&device), [(0, 512), (512, 512), (1024, 512)]);
    }

    #[test]
    fn there_is_room_or_a_warning() {
        let (end, far) = (u64::MAX - 511, i64::MAX);
        let one = |address| found(&[(Allocate, address, 511, Some(far), Some(far))]);
        assert_eq!(held(&one(0).0), [(512, far.unsigned_abs() - 511)]);
        assert_eq!(held(&one(end).0), [(1 << 63, far.unsigned_abs() - 511)]);
        let (device, warnings) = one(1 << 62);
        assert_eq!((held(&device).len(), warnings.len()), (1, 0));
        let (device, warnings) =
            found(&[(Allocate, 0, 512, Some(far), None), (Allocate, end, u64::MAX, Some(far), None)]);
        assert_eq!(held(&device), []);
        assert!(warnings.contains(&HistoryWarning::TotalMisfit { device: 3, event: 0 }), "{warnings:?}");
    }
}
