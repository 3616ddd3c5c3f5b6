//! The entirely free segments over the events.

use foldhash::HashMap;
use orlop_trace::history::{BlockState, DeviceHistory, EventAction, HistoryEvent, SizeRules};
use std::collections::BTreeMap;

/// The segments of the default pool and the number of blocks in each. Pages that are mapped individually are
/// ignored: garbage collection does not release them.
#[derive(Debug)]
pub(super) struct Occupancy<'a> {
    rules: &'a SizeRules,
    segments: BTreeMap<u64, RegionOccupancy>,
    /// The segment of each block, by address.
    block_segments: HashMap<u64, u64>,
    /// Whether the recording has no completions, so that a request to free is final.
    frees_at_once: bool,
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
        let frees_at_once = !history.events.iter().any(|event| event.action == EventAction::FreeCompleted);
        let (segments, block_segments) = (BTreeMap::new(), HashMap::default());
        let mut occupancy = Self { rules, segments, block_segments, frees_at_once, idle: 0, idle_large: 0 };
        for segment in history.start.iter().filter(|segment| segment.pool == (0, 0) && !segment.expandable) {
            occupancy.add_segment(segment.address, segment.bytes, segment.small);
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

    pub(super) fn apply(&mut self, index: usize, event: &HistoryEvent, history: &DeviceHistory) {
        let is_default_pool = || history.pool(index) == (0, 0);
        match event.action {
            EventAction::RegionReserved if is_default_pool() => {
                self.add_segment(event.address, event.bytes, self.rules.is_small_segment(event.bytes));
            }
            EventAction::RegionReleased => self.remove_segment(event.address),
            EventAction::Allocate => self.take(event.address),
            EventAction::FreeCompleted => self.free(event.address),
            EventAction::FreeRequested if self.frees_at_once => self.free(event.address),
            _ => {}
        }
    }

    fn add_segment(&mut self, address: u64, bytes: u64, small: bool) {
        self.remove_segment(address);
        self.segments.insert(address, RegionOccupancy { bytes, blocks: 0, small });
        self.count(small, true);
    }

    fn remove_segment(&mut self, address: u64) {
        if let Some(segment) = self.segments.remove(&address)
            && segment.blocks == 0
        {
            self.count(segment.small, false);
        }
    }

    fn take(&mut self, address: u64) {
        let Some((&start, segment)) = self.segments.range_mut(..=address).next_back() else { return };
        if address - start >= segment.bytes || self.block_segments.insert(address, start).is_some() {
            return;
        }
        segment.blocks += 1;
        if segment.blocks == 1 {
            let small = segment.small;
            self.count(small, false);
        }
    }

    fn free(&mut self, address: u64) {
        let start = self.block_segments.remove(&address);
        let Some(segment) = start.and_then(|start| self.segments.get_mut(&start)) else { return };
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
