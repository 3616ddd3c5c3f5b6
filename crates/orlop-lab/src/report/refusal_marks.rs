//! Refused requests, as marks on the page's timeline.

use super::block_lifetimes::instant;
use orlop_trace::history::{DeviceHistory, Sites};
use serde::Serialize;

/// A refused request whose cause is recorded.
#[derive(Debug, Serialize)]
pub(super) struct RefusalMark {
    #[serde(rename = "moment")]
    instant: u64,
    /// Requested bytes.
    bytes: u64,
    /// The bytes that were left: of the device, the limit or the budget.
    left: u64,
    /// What refused it: `device`, `limit` or `budget`.
    cause: &'static str,
    /// The name of the allocator; for a budget, that of its memory kind.
    refuser: String,
    /// What became of the request: `served`, `retried` or `failed`.
    outcome: &'static str,
}

/// Returns the marks of a device, in order of time.
pub(super) fn refusal_marks(history: &DeviceHistory, sites: &Sites) -> Vec<RefusalMark> {
    let marks = history.refusals.iter().filter_map(|refusal| {
        let index = usize::try_from(refusal.event).ok()?;
        let event = history.events.get(index)?;
        Some(RefusalMark {
            instant: instant(index),
            bytes: event.bytes,
            left: event.address,
            cause: refusal.cause.name(),
            refuser: sites.name(refusal.refuser).to_owned(),
            outcome: refusal.outcome.name(),
        })
    });
    marks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::History;

    #[test]
    fn marks_have_cause_refuser_and_outcome() {
        let table = "device,time_ns,action,address,bytes,refusal\n\
            0,1,allocate,0x100,64,\n\
            0,2,refused,0x10,4096,budget|kv_cache|served\n\
            0,3,out_of_memory,0x20,8192,limit|bfc|failed\n";
        let history = History::parse(table.as_bytes()).unwrap();
        let marks = refusal_marks(&history.devices[0], &history.sites);
        assert_eq!(
            serde_json::to_value(marks).unwrap(),
            serde_json::json!([
                {"moment": 2, "bytes": 4096, "left": 16, "cause": "budget", "refuser": "kv_cache",
                 "outcome": "served"},
                {"moment": 3, "bytes": 8192, "left": 32, "cause": "limit", "refuser": "bfc",
                 "outcome": "failed"},
            ])
        );
    }
}
