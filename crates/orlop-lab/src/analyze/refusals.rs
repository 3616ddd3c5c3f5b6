//! Refused requests by what refused them. A refusal is not a failure: most are served by a retry.

use orlop_trace::history::{DeviceHistory, EventAction, RefusalOutcome, Sites};
use serde::Serialize;
use std::collections::BTreeMap;

/// The requests that one allocator or budget refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusalCount {
    /// What refused them: `device`, `limit` or `budget`.
    pub cause: &'static str,
    /// The name of the allocator; for a budget, that of its memory kind.
    pub refuser: String,
    /// The number of refusals of requests that were served in the end.
    pub served: u64,
    /// The number of refusals of requests that were refused again.
    pub retried: u64,
    /// The number of requests that failed with this refusal.
    pub failed: u64,
    /// The bytes of the largest request.
    pub largest: u64,
}

impl RefusalCount {
    /// Counts the refusals of a device; empty if the source does not record what refused a request.
    pub(super) fn of(history: &DeviceHistory, sites: &Sites) -> Vec<Self> {
        let mut counts = BTreeMap::<(&'static str, &str), Self>::new();
        for refusal in &history.refusals {
            let Some(event) = history.events.get(refusal.event as usize) else { continue };
            if !matches!(event.action, EventAction::Refused | EventAction::OutOfMemory) {
                continue;
            }
            let (cause, refuser) = (refusal.cause.name(), sites.name(refusal.refuser));
            let count = counts.entry((cause, refuser)).or_insert_with(|| Self {
                cause,
                refuser: refuser.to_owned(),
                served: 0,
                retried: 0,
                failed: 0,
                largest: 0,
            });
            match refusal.outcome {
                RefusalOutcome::Served => count.served += 1,
                RefusalOutcome::Failed => count.failed += 1,
                _ => count.retried += 1,
            }
            count.largest = count.largest.max(event.bytes);
        }
        counts.into_values().collect()
    }

    /// Returns the number of all refusals.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.served + self.retried + self.failed
    }
}
