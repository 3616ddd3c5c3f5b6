//! What was there before the first event, worked out from what was there after the last.
//!
//! A recording begins in the middle of a run. The segments at its end are known to the byte, so the events
//! are undone from the last to the first: a block that was allocated becomes free and merges with the free
//! memory beside it, a block that was freed comes back, segments go and return. What is left is the state
//! that the allocator was in, block by block, and replaying the events from there under the same rules gives
//! every recorded address.
//!
//! One thing is not written anywhere: how long a freed block was. Events have what was *asked for*; the
//! allocator rounds that up, and keeps what is too little to split off (see [`SizeRules`]). That rest is
//! found from two facts about memory whose pieces have a least size: a free piece beside the block that is
//! smaller than any free piece can be belongs to the block; and where the memory behind the block was in use
//! again before the block was freed, the use begins where the block ends (see `state`). Only if nothing ever
//! happened in the memory behind it is the block taken to have no rest.
//!
//! What cannot be undone is told as a [`HistoryWarning`] and left out.

mod state;

use self::state::{StartRegion, StartState};
use super::{
    BlockState, DeviceHistory, EventAction, EventDetail, History, HistoryWarning, MAX_WARNINGS, SizeRules,
    warn,
};
use std::collections::{HashMap, HashSet, VecDeque};

impl History {
    /// Sets [`start`](DeviceHistory::start) of every device from its segments at the end and its events, by
    /// PyTorch's rules under [`settings`](History::settings). Readers of snapshots have done so.
    ///
    /// A device that has neither segments nor events about them is left as it is. What does not fit is added
    /// to [`warnings`](History::warnings).
    pub fn find_start(&mut self) {
        let rules = SizeRules::parse(self.settings.as_deref().unwrap_or_default());
        for device in &mut self.devices {
            let told = |action| matches!(action, EventAction::RegionReserved | EventAction::RegionReleased);
            let mapped = |action| matches!(action, EventAction::Mapped | EventAction::Unmapped);
            let regions = device.events.iter().any(|event| told(event.action) || mapped(event.action));
            if device.end.is_empty() && !regions {
                continue;
            }
            let mut undo = Undo::new(device, rules.clone());
            for place in (0..device.events.len()).rev() {
                undo.event(device, place);
            }
            let (start, found) = undo.finish();
            device.start = start;
            for warning in found {
                warn(&mut self.warnings, warning);
            }
        }
    }
}

struct Undo {
    device: u32,
    state: StartState,
    /// Whether the source tells when a block was given back, or only when its memory was free.
    requests: bool,
    /// Blocks that were freed where no segment is, until their allocation is found: where, the event, the
    /// bytes.
    outside: HashMap<u64, (usize, u64)>,
    /// The first ones of those that were found, which come last.
    warnings: VecDeque<HistoryWarning>,
    more: u64,
}

impl Undo {
    fn new(device: &DeviceHistory, rules: SizeRules) -> Self {
        Self {
            device: device.device,
            state: StartState::of(&device.end, rules),
            requests: has_requests(device),
            outside: HashMap::new(),
            warnings: VecDeque::new(),
            more: 0,
        }
    }

    fn warn(&mut self, warning: HistoryWarning) {
        self.warnings.push_front(warning);
        if self.warnings.len() >= MAX_WARNINGS {
            self.warnings.pop_back();
            self.more += 1;
        }
    }

    fn event(&mut self, history: &DeviceHistory, place: usize) {
        let Some(event) = history.events.get(place) else { return };
        let (device, address, bytes) = (self.device, event.address, event.bytes);
        let region = |expandable, small| StartRegion {
            bytes,
            stream: event.stream,
            small,
            expandable,
            pool: history.detail(place).map_or((0, 0), |&EventDetail { pool, .. }| pool),
            site: event.site,
        };
        let fits = match event.action {
            EventAction::Allocate => {
                self.allocated(place, address, bytes);
                true
            }
            EventAction::FreeRequested => {
                self.freed(place, address, bytes, BlockState::Live);
                true
            }
            EventAction::FreeCompleted => {
                let state = if self.requests { BlockState::Pending } else { BlockState::Live };
                self.freed(place, address, bytes, state);
                true
            }
            EventAction::RegionReserved => self.state.remove_region(address, bytes),
            EventAction::RegionReleased => {
                self.state.add_region(address, region(false, self.state.rules().is_small_segment(bytes)))
            }
            EventAction::Mapped => self.state.unmap(address, bytes),
            EventAction::Unmapped => {
                self.state.map(address, region(true, self.state.rules().is_small_page(bytes)))
            }
            EventAction::Use | EventAction::OutOfMemory | EventAction::Snapshot | EventAction::Annotation => {
                true
            }
        };
        if !fits {
            self.warn(HistoryWarning::RegionMisfit { device, event: place, address });
        }
    }

    /// Before an allocation its block was free.
    fn allocated(&mut self, event: usize, address: u64, bytes: u64) {
        let device = self.device;
        match self.state.block(address) {
            // One whose free was completed and never requested (PyTorch: a graph's, which go with its pool)
            // is taken for pending up to here.
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

    /// Before a free its block was in `state`.
    fn freed(&mut self, event: usize, address: u64, bytes: u64, state: BlockState) {
        match self.state.block(address) {
            Some(block) if block.state == BlockState::Pending && state == BlockState::Live => {
                if block.requested != bytes {
                    let device = self.device;
                    self.warn(HistoryWarning::SizeDiffers { device, event, address });
                }
                self.state.revive(address);
            }
            // The completion of this free was met before, outside.
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
        if self.more > 0 {
            warnings.push(HistoryWarning::More { count: self.more });
        }
        (self.state.into_segments(), warnings)
    }
}

/// Whether the source tells when a block is given back. It does not if a block was allocated and then free
/// without that. If there is neither, the frees are completions of what was given back before the first
/// event.
fn has_requests(device: &DeviceHistory) -> bool {
    if device.events.iter().any(|event| event.action == EventAction::FreeRequested) {
        return true;
    }
    let mut allocated = HashSet::new();
    !device.events.iter().any(|event| match event.action {
        EventAction::Allocate => {
            allocated.insert(event.address);
            false
        }
        EventAction::FreeCompleted => allocated.contains(&event.address),
        _ => false,
    })
}
