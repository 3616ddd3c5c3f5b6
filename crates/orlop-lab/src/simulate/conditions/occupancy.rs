//! The entirely free segments over the events.

use orlop_trace::history::{BlockState, DeviceHistory, EventAction, HistoryEvent, SizeRules};
use std::collections::{BTreeMap, HashMap};

/// The segments of the default pool and the number of blocks in each. Pages that are mapped individually are
/// ignored: garbage collection does not release them.
#[derive(Debug)]
pub(super) struct Occupancy<'a> {
    rules: &'a SizeRules,
    segments: BTreeMap<u64, RegionOccupancy>,
    /// The segment of each block, by address.
    homes: HashMap<u64, u64>,
    /// Whether the recording has no completions, so that a request to free is final.
    at_once: bool,
    idle: usize,
    idle_large: usize,
}

#[derive(Debug, Clone, Copy)]
struct RegionOccupancy {
    bytes: u64,
    blocks: usize,
    small: bool,
}

impl<'a> Occupancy<'a> {
    pub(super) fn of(history: &DeviceHistory, rules: &'a SizeRules) -> Self {
        let at_once = !history.events.iter().any(|event| event.action == EventAction::FreeCompleted);
        let (segments, homes) = (BTreeMap::new(), HashMap::new());
        let mut occupancy = Self { rules, segments, homes, at_once, idle: 0, idle_large: 0 };
        for segment in history.start.iter().filter(|segment| segment.pool == (0, 0) && !segment.expandable) {
            occupancy.gain(segment.address, segment.bytes, segment.small);
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                occupancy.take(block.address);
            }
        }
        occupancy
    }

    /// Returns `true` if a segment is free as a whole.
    pub(super) fn has_idle(&self) -> bool {
        self.idle > 0
    }

    /// Returns `true` if a large segment is free as a whole: what a garbage collection can release.
    pub(super) fn has_idle_large(&self) -> bool {
        self.idle_large > 0
    }

    pub(super) fn apply(&mut self, place: usize, event: &HistoryEvent, history: &DeviceHistory) {
        let is_common = || history.detail(place).is_none_or(|detail| detail.pool == (0, 0));
        match event.action {
            EventAction::RegionReserved if is_common() => {
                self.gain(event.address, event.bytes, self.rules.is_small_segment(event.bytes));
            }
            EventAction::RegionReleased => self.lose(event.address),
            EventAction::Allocate => self.take(event.address),
            EventAction::FreeCompleted => self.free(event.address),
            EventAction::FreeRequested if self.at_once => self.free(event.address),
            _ => {}
        }
    }

    fn gain(&mut self, address: u64, bytes: u64, small: bool) {
        self.lose(address);
        self.segments.insert(address, RegionOccupancy { bytes, blocks: 0, small });
        self.count(small, true);
    }

    fn lose(&mut self, address: u64) {
        if let Some(segment) = self.segments.remove(&address)
            && segment.blocks == 0
        {
            self.count(segment.small, false);
        }
    }

    fn take(&mut self, address: u64) {
        let Some((&home, segment)) = self.segments.range_mut(..=address).next_back() else { return };
        if address - home >= segment.bytes || self.homes.insert(address, home).is_some() {
            return;
        }
        segment.blocks += 1;
        if segment.blocks == 1 {
            let small = segment.small;
            self.count(small, false);
        }
    }

    fn free(&mut self, address: u64) {
        let home = self.homes.remove(&address);
        let Some(segment) = home.and_then(|home| self.segments.get_mut(&home)) else { return };
        segment.blocks = segment.blocks.saturating_sub(1);
        if segment.blocks == 0 {
            let small = segment.small;
            self.count(small, true);
        }
    }

    /// Counts one more idle segment, or one less.
    fn count(&mut self, small: bool, more: bool) {
        let change = |count: &mut usize| *count = if more { *count + 1 } else { count.saturating_sub(1) };
        change(&mut self.idle);
        if !small {
            change(&mut self.idle_large);
        }
    }
}
