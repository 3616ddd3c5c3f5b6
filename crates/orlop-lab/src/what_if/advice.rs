//! The advice of a sweep: settings to use, or the reason why there are none.

use super::rank::Advantage;
use super::recorded_run::UnreliableReplay;
use super::what_if_report::WhatIfRow;
use orlop_core::ByteSize;
use orlop_core::torch::TorchVersion;
use serde::{Serialize, Serializer};
use std::fmt;

/// The line of Python that starts recording the history; it goes before the run.
pub const RECORD_HISTORY: &str = "torch.cuda.memory._record_memory_history()";

/// The line of Python that writes the recording; it goes after the run, or where it fails.
pub const DUMP_SNAPSHOT: &str = "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")";

/// Settings of PyTorch that are better than the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// The value for `PYTORCH_CUDA_ALLOC_CONF`; empty for PyTorch's defaults.
    pub conf: String,
    /// The peak of reserved bytes with these settings.
    pub peak_reserved: u64,
    /// The reduction of the peak of reserved bytes; negative if it grows. `None` if the baseline runs out of
    /// memory.
    pub saves: Option<i64>,
    /// The number of retries, each of which releases all cached memory.
    pub retries: u64,
    /// The first release of PyTorch that has all these settings.
    #[serde(serialize_with = "as_text")]
    pub since: TorchVersion,
}

/// The reason for advice, or for its absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdviceReason {
    /// It runs, and the baseline does not.
    Runs,
    /// It reserves fewer bytes at its peak.
    ReservesLess {
        /// The difference in bytes.
        bytes: u64,
    },
    /// It reserves as much, and needs fewer bytes to run without a retry.
    NeedsLess {
        /// The difference in bytes.
        bytes: u64,
    },
    /// It needs as much memory and has fewer retries.
    RetriesLess,
    /// No settings of PyTorch are significantly better.
    NothingToGain,
    /// No settings of PyTorch run in the memory.
    NothingRuns,
    /// Replays do not reproduce the recorded run.
    Withheld(UnreliableReplay),
}

impl Advice {
    pub(super) fn of(row: &WhatIfRow) -> Option<Self> {
        let outcome = &row.outcome;
        let (peak_reserved, saves, retries) = (outcome.peak_reserved, row.saves, outcome.retries);
        Some(Self { conf: outcome.conf.clone()?, peak_reserved, saves, retries, since: row.since })
    }
}

pub(super) fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl AdviceReason {
    pub(super) fn of(advantage: Advantage, better: &WhatIfRow, baseline: &WhatIfRow) -> Self {
        let without_retry =
            |row: &WhatIfRow| row.smallest.and_then(|smallest| smallest.without_retry).unwrap_or(0);
        match advantage {
            Advantage::Runs => Self::Runs,
            Advantage::ReservesLess => Self::ReservesLess {
                bytes: baseline.outcome.peak_reserved.saturating_sub(better.outcome.peak_reserved),
            },
            Advantage::NeedsLess => {
                Self::NeedsLess { bytes: without_retry(baseline).saturating_sub(without_retry(better)) }
            }
            Advantage::RetriesLess => Self::RetriesLess,
        }
    }
}

impl fmt::Display for AdviceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Runs => f.write_str("it runs, and the present settings run out of memory"),
            Self::ReservesLess { bytes } => write!(f, "it reserves {} less at its peak", ByteSize(bytes)),
            Self::NeedsLess { bytes: 0 } => f.write_str("it reserves as much and runs without a retry"),
            Self::NeedsLess { bytes } => {
                write!(f, "it reserves as much and needs {} less to run without a retry", ByteSize(bytes))
            }
            Self::RetriesLess => f.write_str("it needs as much memory and has fewer retries"),
            Self::NothingToGain => {
                f.write_str("nothing to gain: no settings of PyTorch are better by one percent")
            }
            Self::NothingRuns => f.write_str("no settings of PyTorch run in this memory"),
            Self::Withheld(doubt) => doubt.fmt(f),
        }
    }
}

impl Serialize for AdviceReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for UnreliableReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = |event: Option<u64>| match event {
            // Messages number events from 1.
            Some(event) => format!("runs out of memory at event {}", event.saturating_add(1)),
            None => "does not run out of memory".to_owned(),
        };
        match *self {
            Self::NoHistory => write!(
                f,
                "the recording has no allocations; to record a run, call {RECORD_HISTORY} before it and \
                 {DUMP_SNAPSHOT} after it"
            ),
            Self::NoAddress { allocations } => write!(
                f,
                "PyTorch's rules reproduce none of the {allocations} recorded addresses: the recording is of \
                 another allocator, or its parts do not belong together; to record a run, call \
                 {RECORD_HISTORY} before it and {DUMP_SNAPSHOT} after it"
            ),
            Self::NoReserved => write!(
                f,
                "the recording does not have the reserved bytes of the run, so its replay cannot be checked; \
                 a snapshot of PyTorch has them: call {RECORD_HISTORY} before the run and {DUMP_SNAPSHOT} \
                 after it"
            ),
            Self::OutcomeDiffers { recorded, replayed } => {
                write!(f, "the recorded run {}, and its replay {}", outcome(recorded), outcome(replayed))
            }
            Self::PeakDiffers { recorded, replayed } => write!(
                f,
                "the recorded run reserved {} at its peak, and its replay {}, which differs by more than one \
                 percent",
                ByteSize(recorded),
                ByteSize(replayed)
            ),
        }
    }
}
