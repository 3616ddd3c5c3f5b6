//! The recorded run, which its replay must reproduce before conclusions are drawn from replays.

use super::rank::is_same;
use crate::analyze::peak_reserved;
use crate::simulate::{Fidelity, MemoryLimit, RunConditions, SimulationOutcome};
use orlop_core::torch::{TieRule, TorchReleases};
use orlop_trace::history::{DeviceHistory, EventAction, History};

/// The facts of a recording with which a replay is compared.
#[derive(Debug, Clone)]
pub(super) struct RecordedRun<'a> {
    history: &'a DeviceHistory,
    pub(super) conditions: RunConditions,
    pub(super) releases: TorchReleases,
    pub(super) fidelity: Option<Fidelity>,
    pub(super) peak_reserved: Option<u64>,
    /// Whether there were allocations in the recording.
    has_history: bool,
    /// The event of the first failed request.
    failed: Option<u64>,
}

/// The reason why replays of a recording do not represent its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreliableReplay {
    /// The recording has no allocations.
    NoHistory,
    /// PyTorch's rules reproduce none of the recorded addresses.
    NoAddress {
        /// The number of recorded allocations.
        allocations: u64,
    },
    /// Reserved bytes are not recorded: neither segments nor a counter.
    NoReserved,
    /// Either the recorded run or its replay ran out of memory, and the other did not.
    OutcomeDiffers {
        /// The event of the recorded run.
        recorded: Option<u64>,
        /// The event of the replay.
        replayed: Option<u64>,
    },
    /// The peak of reserved bytes differs between the recorded run and its replay.
    PeakDiffers {
        /// The peak of the recorded run.
        recorded: u64,
        /// The peak of its replay.
        replayed: u64,
    },
}

/// Returns the reason why a recording allows no conclusions at all: it has no allocations, or it is a
/// snapshot of PyTorch whose events do not belong to its segments.
#[must_use]
pub fn check_recording(history: &History) -> Option<UnreliableReplay> {
    if !history.devices.iter().any(has_history) {
        return Some(UnreliableReplay::NoHistory);
    }
    // Other allocators record no settings, and have other rules.
    let (conf, _) = history.torch_conf();
    let of_pytorch = history.settings.is_some();
    let mut snapshots = history.devices.iter().filter(|device| of_pytorch && Fidelity::applies_to(device));
    snapshots.find_map(|device| no_address(Fidelity::of(device, &conf, history.releases)))
}

fn has_history(history: &DeviceHistory) -> bool {
    history.events.iter().any(|event| event.action == EventAction::Allocate)
}

fn no_address(fidelity: Fidelity) -> Option<UnreliableReplay> {
    let Fidelity { allocations, same, .. } = fidelity;
    (allocations > 0 && same == 0).then_some(UnreliableReplay::NoAddress { allocations })
}

fn ties(fidelity: Option<Fidelity>, releases: TorchReleases) -> TieRule {
    fidelity
        .map_or_else(|| releases.tie_rules().first().copied().unwrap_or_default(), |fidelity| fidelity.ties)
}

impl<'a> RecordedRun<'a> {
    pub(super) fn of(all: &History, history: &'a DeviceHistory) -> Self {
        let (conf, _) = all.torch_conf();
        let failed = history.events.iter().position(|event| event.action == EventAction::OutOfMemory);
        // The conditions do not depend on the order of equal blocks, which is a result of the fidelity.
        let (fidelity, mut conditions) = rayon::join(
            || Fidelity::applies_to(history).then(|| Fidelity::of(history, &conf, all.releases)),
            || RunConditions::of(history, &conf),
        );
        let device = |bytes| MemoryLimit { bytes, below: None, of_process: false };
        conditions.limit = conditions.limit.or(history.memory.map(device));
        Self {
            history,
            conditions,
            releases: all.releases,
            fidelity,
            peak_reserved: peak_reserved(history, history.events.len()),
            has_history: has_history(history),
            failed: failed.map(|index| index as u64),
        }
    }

    /// Returns the rule of the recorded version of PyTorch.
    pub(super) fn ties(&self) -> TieRule {
        ties(self.fidelity, self.releases)
    }

    /// Checks whether this replay, with the recorded settings and under the conditions of the run, reproduces
    /// the recorded run. Returns the reason if it does not.
    pub(super) fn check(&self, replay: &SimulationOutcome) -> Option<UnreliableReplay> {
        if !self.has_history {
            return Some(UnreliableReplay::NoHistory);
        }
        if let Some(reason) = self.fidelity.and_then(no_address) {
            return Some(reason);
        }
        let Some(recorded) = self.peak_reserved else { return Some(UnreliableReplay::NoReserved) };
        let failed = replay.out_of_memory.map(|failed| failed.event.unwrap_or(0));
        if failed.is_some() != self.failed.is_some() {
            return Some(UnreliableReplay::OutcomeDiffers { recorded: self.failed, replayed: failed });
        }
        // A replay ends at a failed request; a program may continue. With several streams, timing decides
        // which request fails.
        let until = self.failed.and_then(|event| usize::try_from(event).ok());
        // Before its first segment a run has no reserved bytes.
        let recorded = until.map_or(recorded, |until| peak_reserved(self.history, until).unwrap_or(0));
        let replayed = replay.peak_reserved;
        (!is_same(recorded, replayed)).then_some(UnreliableReplay::PeakDiffers { recorded, replayed })
    }
}
