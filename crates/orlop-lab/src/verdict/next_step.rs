//! What to do next: record a run, or look at the call site that holds most.

use super::failure;
use crate::analyze::{DeviceInfo, LIVE_AT_START, LiveMemory, NO_SITE};
use crate::what_if::{DUMP_SNAPSHOT, RECORD_HISTORY};
use orlop_core::ByteSize;

/// Returns the next step. `look` says where every block is shown.
pub(super) fn of(info: &DeviceInfo, look: &str) -> String {
    if info.allocations == 0 {
        return format!("Record a run: call {RECORD_HISTORY} before it and {DUMP_SNAPSHOT} after it.");
    }
    let Some(failed) = failure(info) else {
        return match holder(&info.peak.live) {
            Some(holder) => format!("At the peak, {holder}; {look}."),
            None => format!("No call sites are recorded; {look}."),
        };
    };
    match holder(&failed.live) {
        Some(holder) => match holder.strip_prefix(&failed.site) {
            Some(holds) => format!("{} requested it and{holds}; {look}.", failed.site),
            None => format!("{} requested it, {holder}; {look}.", failed.site),
        },
        None if failed.site == NO_SITE => format!("No call sites are recorded; {look}."),
        None => format!("{} requested it; {look}.", failed.site),
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
