//! External memory of a device: mapped files and memory of other libraries, which no allocator served.

use orlop_trace::history::{DeviceHistory, EventAction, ExternalBlocks};
use serde::Serialize;

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
        let (mut memory, mut blocks) = (Self::default(), ExternalBlocks::default());
        for event in &history.events {
            blocks.note(event);
            memory.peak_bytes = memory.peak_bytes.max(blocks.bytes());
            memory.adopted += u64::from(event.action == EventAction::ExternalAdopted);
        }
        Self { end_bytes: blocks.bytes(), end_blocks: blocks.count(), ..memory }
    }
}
