//! The state before the first event, computed from the state after the last.
//!
//! A recording begins in the middle of a run. The segments at its end are known exactly, so the events are
//! undone from the last to the first: an allocated block becomes free and merges with its free neighbours, a
//! freed block is restored, regions are removed and added. The result is the state of the allocator, block by
//! block. Replaying the events from there under the same rules yields every recorded address.
//!
//! The length of a freed block is not recorded. Events have the *requested* bytes; the allocator rounds them
//! up, and adds a remainder that is too small to split off (see [`SizeRules`]). It follows from two facts
//! about memory whose chunks have a minimum size: a free chunk behind the block that is smaller than any free
//! chunk belongs to the block; and if the memory behind the block was in use again before the block was
//! freed, that use begins where the block ends (see `state`). If the memory behind it never had events, the
//! block has no remainder.
//!
//! Events that cannot be undone are reported as [`HistoryWarning`]s and skipped.

mod state;

use self::state::StartState;
use super::{
    BlockState, DeviceHistory, EventAction, History, HistoryWarning, MAX_WARNINGS, SegmentRange, SizeRules,
};
use foldhash::{HashMap, HashSet};
use std::collections::VecDeque;

impl History {
    /// Sets [`start`](DeviceHistory::start) of every device from its segments at the end and its events, by
    /// PyTorch's rules under [`settings`](History::settings). Readers of snapshots have done this already.
    ///
    /// Devices without segments and without events about segments are not changed. Inconsistencies are added
    /// to [`warnings`](History::warnings).
    pub fn find_start(&mut self) {
        let rules = SizeRules::parse(self.settings.as_deref().unwrap_or_default());
        for device in &mut self.devices {
            if device.end.is_empty() && !device.events.iter().any(|event| event.action.is_region()) {
                continue;
            }
            let mut undo = EventUndo::new(device, rules.clone());
            for index in (0..device.events.len()).rev() {
                undo.event(device, index);
            }
            let (start, warnings) = undo.finish();
            device.start = start;
            for warning in warnings {
                warning.add_to(&mut self.warnings);
            }
        }
    }
}

struct EventUndo {
    device: u32,
    state: StartState,
    /// Whether the source records requests to free, or only completions.
    requests: bool,
    /// Blocks that were freed outside of all segments and whose allocation has not been found yet: by
    /// address, the event and the bytes.
    outside: HashMap<u64, (usize, u64)>,
    /// The warnings of the first events, which are found last.
    warnings: VecDeque<HistoryWarning>,
    omitted: u64,
}

impl EventUndo {
    fn new(device: &DeviceHistory, rules: SizeRules) -> Self {
        Self {
            device: device.device,
            state: StartState::of(&device.end, rules),
            requests: has_requests(device),
            outside: HashMap::default(),
            warnings: VecDeque::new(),
            omitted: 0,
        }
    }

    fn warn(&mut self, warning: HistoryWarning) {
        self.warnings.push_front(warning);
        if self.warnings.len() >= MAX_WARNINGS {
            self.warnings.pop_back();
            self.omitted += 1;
        }
    }

    fn event(&mut self, history: &DeviceHistory, index: usize) {
        let Some(event) = history.events.get(index) else { return };
        let (device, address, bytes) = (self.device, event.address, event.bytes);
        let region = |expandable, small| SegmentRange {
            bytes,
            stream: event.stream,
            small,
            expandable,
            pool: history.pool(index),
            site: event.site,
        };
        let fits = match event.action {
            EventAction::Allocate => {
                self.allocated(index, address, bytes);
                true
            }
            EventAction::FreeRequested => {
                self.freed(index, address, bytes, BlockState::Live);
                true
            }
            EventAction::FreeCompleted => {
                let state = if self.requests { BlockState::Pending } else { BlockState::Live };
                self.freed(index, address, bytes, state);
                true
            }
            EventAction::RegionReserved => self.state.remove_segment(address, bytes),
            EventAction::RegionReleased => {
                self.state.add_segment(address, region(false, self.state.rules().is_small_segment(bytes)))
            }
            EventAction::Mapped => self.state.unmap(address, bytes),
            EventAction::Unmapped => {
                self.state.map(address, region(true, self.state.rules().is_small_page(bytes)))
            }
            EventAction::Use
            | EventAction::OutOfMemory
            | EventAction::Refused
            | EventAction::ExternalAdopted
            | EventAction::ExternalFreed
            | EventAction::Snapshot
            | EventAction::Annotation => true,
        };
        if !fits {
            self.warn(HistoryWarning::RegionMisfit { device, event: index, address });
        }
    }

    /// Undoes an allocation: the block was free before.
    fn allocated(&mut self, event: usize, address: u64, bytes: u64) {
        let device = self.device;
        match self.state.block(address) {
            // A block whose free was completed and never requested (PyTorch: of a graph, freed with its pool)
            // counts as pending up to here.
            Some(block) => {
                if block.requested != bytes {
                    self.warn(HistoryWarning::SizeDiffers { device, event, address });
                }
                self.state.free(address);
            }
            _ if self.outside.remove(&address).is_some() => {
                self.warn(HistoryWarning::NotInSegments { device, address, bytes });
            }
            None if self.state.is_used(address) => {
                self.warn(HistoryWarning::Overlap { device, event, address });
            }
            None => self.warn(HistoryWarning::NotInSegments { device, address, bytes }),
        }
    }

    /// Undoes a free: the block was in `state` before.
    fn freed(&mut self, event: usize, address: u64, bytes: u64, state: BlockState) {
        match self.state.block(address) {
            Some(block) if block.state == BlockState::Pending && state == BlockState::Live => {
                if block.requested != bytes {
                    let device = self.device;
                    self.warn(HistoryWarning::SizeDiffers { device, event, address });
                }
                self.state.revive(address);
            }
            // The completion of this free was found before, outside of all segments.
            _ if state == BlockState::Live && self.requests && self.outside.contains_key(&address) => {}
            _ if self.state.take(address, bytes, state) => {}
            _ => {
                self.outside.insert(address, (event, bytes));
            }
        }
    }

    fn finish(mut self) -> (Vec<super::Segment>, Vec<HistoryWarning>) {
        let mut unknown: Vec<(usize, u64)> =
            self.outside.iter().map(|(&address, &(event, _))| (event, address)).collect();
        unknown.sort_unstable_by_key(|&(event, _)| std::cmp::Reverse(event));
        for (event, address) in unknown {
            self.warn(HistoryWarning::FreedUnknown { device: self.device, event, address });
        }
        let mut warnings: Vec<HistoryWarning> = self.warnings.into();
        if self.omitted > 0 {
            warnings.push(HistoryWarning::More { count: self.omitted });
        }
        (self.state.segments(), warnings)
    }
}

/// Returns `true` if the source records requests to free. It does not if a block was allocated and completed
/// without one. If there is neither, the completions belong to requests before the first event.
fn has_requests(device: &DeviceHistory) -> bool {
    if device.events.iter().any(|event| event.action == EventAction::FreeRequested) {
        return true;
    }
    let mut allocated = HashSet::default();
    !device.events.iter().any(|event| match event.action {
        EventAction::Allocate => {
            allocated.insert(event.address);
            false
        }
        EventAction::FreeCompleted => allocated.contains(&event.address),
        _ => false,
    })
}
