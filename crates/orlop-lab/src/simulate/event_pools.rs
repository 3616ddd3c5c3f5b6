//! The private pools of events that are read one by one.

use orlop_device::PoolId;
use orlop_trace::history::EventDetail;
use std::collections::HashMap;

/// The id of the default pool.
pub(super) const DEFAULT_POOL: PoolId = (0, 0);

/// The number of a pool in [`EventPools`]; 0 is the default pool.
pub(super) type PoolNumber = u32;

/// The private pools of the events of a device, which a file has before the events.
#[derive(Debug, Default)]
pub(super) struct EventPools {
    ids: Vec<PoolId>,
    numbers: HashMap<PoolId, PoolNumber>,
    /// The pools of the events that have not been read.
    ahead: HashMap<u32, PoolNumber>,
    /// The number of events that have been read.
    events: u32,
}

impl EventPools {
    pub(super) fn add(&mut self, detail: &EventDetail) {
        if detail.pool == DEFAULT_POOL {
            return;
        }
        let number = *self.numbers.entry(detail.pool).or_insert_with(|| {
            self.ids.push(detail.pool);
            PoolNumber::try_from(self.ids.len()).unwrap_or(0)
        });
        self.ahead.insert(detail.event, number);
    }

    /// Returns the pool of the next event.
    pub(super) fn next(&mut self) -> PoolNumber {
        let event = self.events;
        self.events = event.saturating_add(1);
        if self.ahead.is_empty() { 0 } else { self.ahead.remove(&event).unwrap_or(0) }
    }

    pub(super) fn id(&self, pool: PoolNumber) -> PoolId {
        let place = (pool as usize).checked_sub(1);
        place.and_then(|place| self.ids.get(place)).copied().unwrap_or(DEFAULT_POOL)
    }
}
