//! External memory of a device: mapped files and memory of other libraries, which no allocator served.

use orlop_trace::history::{DeviceHistory, EventAction};
use serde::Serialize;
use std::collections::HashMap;

/// The external memory of a device. It is in no figure of the allocators: neither live nor reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExternalMemory {
    /// The peak in bytes.
    pub peak_bytes: u64,
    /// The bytes at the end.
    pub end_bytes: u64,
    /// The number of blocks at the end.
    pub end_blocks: u64,
    /// The number of blocks that were adopted.
    pub adopted: u64,
}

impl ExternalMemory {
    /// Counts the external memory of a history; zero if the source does not record it.
    pub(super) fn of(history: &DeviceHistory) -> Self {
        let mut memory = Self::default();
        let mut live: HashMap<u64, u64> = HashMap::new();
        for event in &history.events {
            match event.action {
                EventAction::ExternalAdopted => {
                    let before = live.insert(event.address, event.bytes).unwrap_or(0);
                    memory.end_bytes = memory.end_bytes.saturating_sub(before).saturating_add(event.bytes);
                    memory.peak_bytes = memory.peak_bytes.max(memory.end_bytes);
                    memory.adopted += 1;
                }
                EventAction::ExternalFreed => {
                    let bytes = live.remove(&event.address).unwrap_or(0);
                    memory.end_bytes = memory.end_bytes.saturating_sub(bytes);
                }
                _ => {}
            }
        }
        memory.end_blocks = live.len() as u64;
        memory
    }
}
