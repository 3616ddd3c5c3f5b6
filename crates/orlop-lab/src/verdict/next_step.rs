//! What to do next: record a run, or look at the call site that holds most.

use super::failure;
use crate::analyze::{DeviceInfo, LIVE_AT_START, LiveMemory, NO_SITE};
use crate::what_if::{DUMP_SNAPSHOT, RECORD_HISTORY};
use orlop_core::ByteSize;

pub(super) fn of(info: &DeviceInfo, file: &str) -> String {
    if info.allocations == 0 {
        return format!("Record a run: call {RECORD_HISTORY} before it and {DUMP_SNAPSHOT} after it.");
    }
    let (when, live) = match failure(info) {
        Some(failed) => ("When it failed", &failed.live),
        None => ("At the peak", &info.peak.live),
    };
    let look = format!("orlop report {file} shows every block");
    match holder(live) {
        Some(holder) => format!("{when}, {holder}; {look}."),
        None => format!("{when}, no call sites are recorded; {look}."),
    }
}

/// Describes the call site with the most live bytes.
fn holder(live: &LiveMemory) -> Option<String> {
    let is_known = |name: &str| ![NO_SITE, LIVE_AT_START].contains(&name);
    let known = live.by_site.top.iter().find(|site| is_known(&site.name));
    let before = live.by_site.top.iter().find(|site| site.name == LIVE_AT_START);
    let before = before.map(|site| format!("{} are from before the recording", ByteSize(site.bytes)));
    let all = ByteSize(live.bytes);
    match (known, before) {
        (Some(site), None) => Some(format!("{} holds {} of {all}", site.name, ByteSize(site.bytes))),
        (Some(site), Some(before)) => {
            Some(format!("{} holds {} of {all}, and {before}", site.name, ByteSize(site.bytes)))
        }
        (None, Some(before)) => Some(format!("{before}, of {all}")),
        (None, None) => None,
    }
}
