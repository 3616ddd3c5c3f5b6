//! Failed requests that are alike: refused by the same, and of the same size.

use orlop_alloc::RefusalCause;
use orlop_trace::history::{DeviceHistory, EventAction, TextId};
use std::collections::HashMap;

/// Failed requests that are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailureGroup {
    /// The index of the event of the first one.
    pub(super) first: usize,
    /// The index of the event of the last one.
    pub(super) last: usize,
    /// The number of requests.
    pub(super) times: u64,
}

/// Groups the failed requests of a device, in order of the first of each group.
pub(super) fn groups(history: &DeviceHistory) -> Vec<FailureGroup> {
    let mut groups: Vec<FailureGroup> = Vec::new();
    let mut known: HashMap<(Option<(RefusalCause, TextId)>, u64), usize> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        if event.action != EventAction::OutOfMemory {
            continue;
        }
        let refusal = history.refusal(index).map(|refusal| (refusal.cause, refusal.refuser));
        let place = *known.entry((refusal, event.bytes)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => (group.last, group.times) = (index, group.times + 1),
            None => groups.push(FailureGroup { first: index, last: index, times: 1 }),
        }
    }
    groups
}
