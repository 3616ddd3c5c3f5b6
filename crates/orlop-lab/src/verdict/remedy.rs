//! Which setting helps, with its gain and its price.

use super::{bytes_too_many, failure, private_bytes};
use crate::analyze::{DeviceInfo, OutOfMemoryReport};
use crate::what_if::{Advice, AdviceReason, UnreliableReplay, WhatIfReport};
use orlop_core::ByteSize;

/// The setting against fragmentation.
const EXPANDABLE: &str = "expandable_segments:True";

/// The remedy if no settings were tried.
pub(super) fn without_sweep(file: &str) -> String {
    format!("Settings were not tried here: orlop what-if {file}")
}

pub(super) fn of(info: &DeviceInfo, sweep: &WhatIfReport) -> String {
    let Some(advice) = &sweep.advice else {
        return match sweep.reason {
            AdviceReason::NothingRuns => nothing_runs(info, sweep),
            AdviceReason::NothingToGain => {
                let than = if sweep.baseline_is_recorded { "the recorded ones" } else { "the defaults" };
                format!("Nothing to gain: no setting of PyTorch is 1 % better than {than}.")
            }
            AdviceReason::Withheld(doubt) => withheld(info, doubt),
            reason => format!("No setting can be recommended: {reason}."),
        };
    };
    let gain = match sweep.reason {
        AdviceReason::Runs => format!("it fits, peak {}", ByteSize(advice.peak_reserved)),
        AdviceReason::ReservesLess { bytes } => format!("{} less reserved", ByteSize(bytes)),
        reason => reason.to_string(),
    };
    format!("{}: {gain}{}.", setting(&advice.conf), price(advice, sweep))
}

/// Formats settings for the environment.
fn setting(conf: &str) -> String {
    match conf {
        "" => "Unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        conf => format!("Set PYTORCH_CUDA_ALLOC_CONF={conf}"),
    }
}

/// Formats what the settings require: retries, and a release of PyTorch.
fn price(advice: &Advice, sweep: &WhatIfReport) -> String {
    let mut price = match advice.retries {
        0 => String::new(),
        1 => "; once all cached memory is released for it".to_owned(),
        retries => format!("; {retries} times all cached memory is released for it"),
    };
    let recorded = sweep.releases;
    if recorded.can_be_before(advice.since) {
        price += &format!("; needs PyTorch {}", advice.since);
        if !recorded.can_be_since(advice.since) {
            price += &format!(" (recorded: {recorded})");
        }
        price += &match sweep.advice_for(recorded.since) {
            Some(older) => format!(", before that {}", older.conf),
            None => ", before that nothing is better".to_owned(),
        };
    }
    price
}

/// Formats why replays say nothing about this recording, with the setting to try if fragmentation is the
/// cause.
fn withheld(info: &DeviceInfo, doubt: UnreliableReplay) -> String {
    let doubt = match doubt {
        UnreliableReplay::NoHistory => "no allocations were recorded",
        UnreliableReplay::NoAddress { .. } => "PyTorch's rules reproduce none of its addresses",
        UnreliableReplay::NoReserved => "reserved bytes are not recorded",
        UnreliableReplay::OutcomeDiffers { .. } => "its replay does not fail where it did",
        _ => "its replay does not reserve what it did",
    };
    let is_in_pieces = |failed: &OutOfMemoryReport| {
        failed.fragmented && bytes_too_many(failed, failed.memory().or(info.memory)).is_none()
    };
    if failure(info).is_some_and(is_in_pieces) {
        return format!("Try PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}, unproven: {doubt}.");
    }
    format!("No setting can be recommended: {doubt}.")
}

fn nothing_runs(info: &DeviceInfo, sweep: &WhatIfReport) -> String {
    if let Some(failed) = failure(info)
        && let Some(bytes) = bytes_too_many(failed, sweep.memory.or(failed.memory()))
    {
        let example = least_release(failed).map_or_else(String::new, |release| format!(", {release}"));
        return format!("No allocator could have served it: at least {} must go{example}.", ByteSize(bytes));
    }
    let beyond = sweep.memory.and_then(|memory| sweep.needed.checked_sub(memory));
    if let Some(bytes) = beyond.filter(|&bytes| bytes > 0) {
        return format!("No allocator could run it there: at least {} must go.", ByteSize(bytes));
    }
    let others = sweep.rows.iter().filter(|row| row.outcome.out_of_memory.is_none());
    match others.min_by_key(|row| row.outcome.peak_reserved) {
        Some(row) => format!(
            "No setting of PyTorch helps; the allocator {} runs with a peak of {}.",
            row.outcome.rules,
            ByteSize(row.outcome.peak_reserved)
        ),
        None => "No setting helps: none of the allocators tried runs in this memory.".to_owned(),
    }
}

/// Describes what to release for a failed request: the free memory of private pools, or the least live
/// memory.
fn least_release(failed: &OutOfMemoryReport) -> Option<String> {
    let unusable = private_bytes(failed);
    if unusable > 0 && failed.releases.is_empty() {
        return Some(format!(
            "for example of the {} that private pools (CUDA graphs) hold free",
            ByteSize(unusable)
        ));
    }
    let release = failed.releases.first()?;
    let site = release.by_site.top.first()?;
    let (all, bytes) = (ByteSize(release.bytes), ByteSize(site.bytes));
    Some(match site.bytes < release.bytes {
        true => format!("for example {all}, {bytes} of it by {}", site.name),
        false => format!("for example {bytes} by {}", site.name),
    })
}
