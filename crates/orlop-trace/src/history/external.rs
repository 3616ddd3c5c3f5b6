//! External memory: mapped files and memory of other libraries, which no allocator served.

use super::{EventAction, HistoryEvent};
use std::collections::HashMap;

/// The external memory of a device at an instant: its events are noted one by one.
#[derive(Debug, Clone, Default)]
pub struct ExternalBlocks {
    /// Bytes by address.
    live: HashMap<u64, u64>,
    bytes: u64,
}

impl ExternalBlocks {
    /// Notes an event. Those of allocators change nothing; memory that is adopted twice counts once.
    pub fn note(&mut self, event: &HistoryEvent) {
        let (before, now) = match event.action {
            EventAction::ExternalAdopted => (self.live.insert(event.address, event.bytes), event.bytes),
            EventAction::ExternalFreed => (self.live.remove(&event.address), 0),
            _ => return,
        };
        self.bytes = self.bytes.saturating_sub(before.unwrap_or(0)).saturating_add(now);
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.live.len() as u64
    }
}
