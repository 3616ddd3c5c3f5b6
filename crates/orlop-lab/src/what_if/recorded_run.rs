//! The recorded run, which its own replay must reproduce before anything is concluded from replays.

use super::rank::is_same;
use crate::analyze::peak_reserved_after;
use crate::simulate::{Fidelity, MemoryLimit, RunConditions, SimulationOutcome};
use orlop_trace::history::{DeviceHistory, EventAction, History};

/// What a recording tells of its run that a replay can be held against.
#[derive(Debug, Clone)]
pub(super) struct RecordedRun<'a> {
    history: &'a DeviceHistory,
    pub(super) conditions: RunConditions,
    pub(super) fidelity: Option<Fidelity>,
    pub(super) peak_reserved: Option<u64>,
    /// Whether anything was allocated while it was recorded.
    has_history: bool,
    /// The first request that failed, by its event.
    failed: Option<u64>,
}

/// Why replays of a recording say nothing about its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// Nothing was allocated while it was recorded.
    NoHistory,
    /// PyTorch's rules give none of the recorded addresses.
    NoAddress {
        /// How many were recorded.
        allocations: u64,
    },
    /// Nothing tells how much memory the run held: neither segments nor a count.
    NoReserved,
    /// Either the recorded run ran out of memory or its replay did, and the other did not.
    EndsElsewhere {
        /// The event of the recorded run.
        recorded: Option<u64>,
        /// The event of the replay.
        replayed: Option<u64>,
    },
    /// The replay holds another amount of memory at its peak than the recorded run did.
    PeakDiffers {
        /// Bytes held in the recorded run.
        recorded: u64,
        /// Bytes held in its replay.
        replayed: u64,
    },
}

/// Why nothing follows from a recording, whatever is asked of it: nothing was allocated while it was
/// recorded, or it is a snapshot of PyTorch's whose events are not those of its segments.
#[must_use]
pub fn recording_doubt(history: &History) -> Option<Doubt> {
    if !history.devices.iter().any(has_history) {
        return Some(Doubt::NoHistory);
    }
    // Others do not tell settings, and have other rules.
    let (conf, _) = history.torch_conf();
    let of_pytorch = history.settings.is_some();
    let mut told = history.devices.iter().filter(|device| of_pytorch && Fidelity::applies_to(device));
    told.find_map(|device| no_address(Fidelity::of(device, &conf)))
}

fn has_history(history: &DeviceHistory) -> bool {
    history.events.iter().any(|event| event.action == EventAction::Allocate)
}

fn no_address(fidelity: Fidelity) -> Option<Doubt> {
    let Fidelity { allocations, same, .. } = fidelity;
    (allocations > 0 && same == 0).then_some(Doubt::NoAddress { allocations })
}

impl<'a> RecordedRun<'a> {
    pub(super) fn of(all: &History, history: &'a DeviceHistory) -> Self {
        let (conf, _) = all.torch_conf();
        let failed = history.events.iter().position(|event| event.action == EventAction::OutOfMemory);
        let mut conditions = RunConditions::of(history, &conf);
        let device = |bytes| MemoryLimit { bytes, below: None, of_process: false };
        conditions.limit = conditions.limit.or(history.memory.map(device));
        Self {
            history,
            conditions,
            fidelity: Fidelity::applies_to(history).then(|| Fidelity::of(history, &conf)),
            peak_reserved: peak_reserved_after(history, history.events.len()),
            has_history: has_history(history),
            failed: failed.map(|place| place as u64),
        }
    }

    /// Whether this replay, by the recorded settings and under the conditions of the run, is the recorded
    /// run.
    pub(super) fn doubt(&self, replay: &SimulationOutcome) -> Option<Doubt> {
        if !self.has_history {
            return Some(Doubt::NoHistory);
        }
        if let Some(doubt) = self.fidelity.and_then(no_address) {
            return Some(doubt);
        }
        let Some(recorded) = self.peak_reserved else { return Some(Doubt::NoReserved) };
        let failed = replay.out_of_memory.map(|failed| failed.event.unwrap_or(0));
        if failed.is_some() != self.failed.is_some() {
            return Some(Doubt::EndsElsewhere { recorded: self.failed, replayed: failed });
        }
        // A replay ends where a request fails; a program may go on. With several streams it depends on the
        // clock which one.
        let until = self.failed.and_then(|event| usize::try_from(event).ok());
        // Before its first segment a run holds nothing.
        let recorded = until.map_or(recorded, |until| peak_reserved_after(self.history, until).unwrap_or(0));
        let replayed = replay.peak_reserved;
        (!is_same(recorded, replayed)).then_some(Doubt::PeakDiffers { recorded, replayed })
    }
}
