//! The verdict on a device of a recording: what happened, which setting helps, and what to do next.
//!
//! Each is one sentence without jargon. Everything else that the analyses find is detail for a second look.
//!
//! ```
//! use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
//! use orlop_lab::verdict::RunVerdict;
//! use orlop_trace::history::History;
//!
//! let history = History::parse("a,0,1000\na,1,500\nf,0\nf,1\n".as_bytes())?;
//! let info = SnapshotInfo::of(&history, SiteNaming::default());
//! let verdict = RunVerdict::of(&info.devices[0], None, "run.csv");
//! assert_eq!(verdict.to_string().lines().count(), 3);
//! assert!(verdict.finding.starts_with("device 0 holds 1.46 KiB at its peak"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod finding;
mod next_step;
mod remedy;
#[cfg(test)]
mod tests;

use crate::analyze::{DeviceInfo, OutOfMemoryReport, SegmentPool};
use crate::what_if::{WhatIf, WhatIfReport};
use orlop_trace::formats::numbered_device;
use orlop_trace::history::{History, Workload};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;

/// The verdict on a device of a recording. It prints as three lines, most of at most 80 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunVerdict {
    /// What happened, or what is lost.
    pub finding: String,
    /// The setting to use, with its gain and its price; or that there is none, and why.
    pub remedy: String,
    /// What to do next.
    pub next: String,
}

/// The maximum number of events of a device that is replayed with all settings for its verdict alone, which
/// takes about two seconds.
const MAX_SWEPT_EVENTS: usize = 50_000;

/// Formats a number of things: `1 block`, `2048 blocks`. The plural ends with `s`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

impl RunVerdict {
    pub(crate) fn new(finding: String, remedy: String, next: String) -> Self {
        Self { finding, remedy, next }
    }

    /// Judges a device from its description, and from a sweep of settings if there was one. `file` is the
    /// recording, as commands name it.
    #[must_use]
    pub fn of(info: &DeviceInfo, sweep: Option<&WhatIfReport>, file: &str) -> Self {
        let file = quoted(file);
        Self::judge(info, sweep, &file, &format!("orlop report {file} shows every block"))
    }

    /// As [`Self::of`], for the page of `orlop report`, which shows every block.
    #[must_use]
    pub fn on_page(info: &DeviceInfo, sweep: Option<&WhatIfReport>, file: &str) -> Self {
        Self::judge(info, sweep, &quoted(file), "the page shows every block")
    }

    fn judge(info: &DeviceInfo, sweep: Option<&WhatIfReport>, file: &str, look: &str) -> Self {
        let remedy = if is_host(info.device) {
            "Settings of PyTorch do not apply to the host's memory.".to_owned()
        } else {
            sweep.map_or_else(|| remedy::without_sweep(file), |sweep| remedy::of(info, sweep))
        };
        Self { finding: finding::of(info, sweep), remedy, next: next_step::of(info, look) }
    }

    /// Judges a recorded device from its description and from a sweep of settings, in `memory` bytes or in
    /// those of the recorded run. A device of more than 50,000 events is judged without a sweep, which would
    /// take longer than the verdict is worth.
    #[must_use]
    pub fn of_recorded(history: &History, info: &DeviceInfo, memory: Option<u64>, file: &str) -> Self {
        let device = history.devices.iter().find(|device| device.device == info.device);
        let short = device.filter(|device| device.events.len() <= MAX_SWEPT_EVENTS);
        let sweep =
            short.map(|device| WhatIf::recorded(&Workload::of(device), history, device).memory(memory).run());
        Self::of(info, sweep.as_ref(), file)
    }
}

impl fmt::Display for RunVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.finding, self.remedy, self.next)
    }
}

/// Sorts devices by what a reader asks for first: those on which a request failed, then those with the
/// highest peak; the host's memory last.
pub fn most_urgent_first(devices: &mut [DeviceInfo]) {
    devices.sort_by_key(|info| {
        let peak = info.peak_reserved.unwrap_or(info.peak.live.bytes);
        (is_host(info.device), info.failed() == 0, Reverse(peak), info.device)
    });
}

/// Returns an argument as a shell takes it: in quotes, if it has to be. Control characters, which a terminal
/// would interpret, become question marks.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let argument = argument.replace(char::is_control, "?");
    let is_word = |letter: char| {
        letter.is_alphanumeric() || "_.-:/,@+%=".contains(letter) || (cfg!(windows) && letter == '\\')
    };
    if argument.chars().all(is_word) && !argument.starts_with('=') && !argument.is_empty() {
        argument
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

fn is_host(device: u32) -> bool {
    numbered_device(device).is_some_and(|device| device.is_cpu())
}

/// Returns the failed request that the verdict is about: the largest.
fn failure(info: &DeviceInfo) -> Option<&OutOfMemoryReport> {
    info.out_of_memory.iter().max_by_key(|failed| (failed.requested, Reverse(failed.event)))
}

/// Returns the bytes that have to go before any allocator could serve the failed request in `memory` bytes.
/// `None` if an allocator without fragmentation could.
fn bytes_too_many(failed: &OutOfMemoryReport, memory: Option<u64>) -> Option<u64> {
    let used = failed.live.bytes.saturating_add(private_bytes(failed));
    let needed = used.saturating_add(failed.requested);
    needed.checked_sub(memory?).filter(|&bytes| bytes > 0)
}

/// Returns the bytes that private pools hold without need: no other request can have them.
fn private_bytes(failed: &OutOfMemoryReport) -> u64 {
    let pools = failed.segments.iter().flat_map(|segments| &segments.pools);
    let private = pools.filter(|pool| pool.pool == SegmentPool::Private);
    private.fold(0, |sum: u64, pool| {
        sum.saturating_add(pool.bytes.reserved.saturating_sub(pool.bytes.requested))
    })
}
