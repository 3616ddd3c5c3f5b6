//! The counters of a device over its events.

use crate::history::{BlockState, DeviceHistory, EventAction, ExternalBlocks, HistoryEvent};
use orlop_core::MemoryKind;
use std::collections::HashMap;

/// The bytes of a device at an instant.
#[derive(Debug, Default)]
pub(super) struct DeviceCounts {
    pub(super) live: [u64; MemoryKind::COUNT],
    pub(super) reserved: u64,
    pub(super) pending: u64,
    pub(super) external: ExternalBlocks,
    blocks: HashMap<u64, CountedBlock>,
    /// Freed blocks that a stream may still use, if the history records completions.
    leaving: HashMap<u64, u64>,
    follows_completion: bool,
    next: u64,
}

/// A live block.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedBlock {
    pub(super) bytes: u64,
    kind: MemoryKind,
    /// Its index in order of allocation.
    pub(super) number: u64,
}

/// What an event changes in the counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountChange {
    /// Whether a counter changes.
    pub(super) counters: bool,
    pub(super) began: Option<CountedBlock>,
    pub(super) ended: Option<CountedBlock>,
}

impl DeviceCounts {
    /// Returns the counts at the start of a device's history.
    pub(super) fn at_start(device: &DeviceHistory) -> Self {
        let has = |action| device.events.iter().any(|event| event.action == action);
        let follows_completion = has(EventAction::FreeRequested) && has(EventAction::FreeCompleted);
        let mut counts = Self { follows_completion, ..Self::default() };
        for block in &device.unplaced {
            counts.begin(block.address, block.requested, MemoryKind::Default);
        }
        for segment in &device.start {
            counts.reserved = counts.reserved.saturating_add(segment.bytes);
            for block in &segment.blocks {
                match block.state {
                    BlockState::Live => {
                        counts.begin(block.address, block.requested, MemoryKind::Default);
                    }
                    BlockState::Pending => counts.leave(block.address, block.requested),
                    BlockState::Free => {}
                }
            }
        }
        counts
    }

    /// Returns the live blocks in order of allocation.
    pub(super) fn blocks(&self) -> Vec<(u64, CountedBlock)> {
        let mut blocks: Vec<_> = self.blocks.iter().map(|(&address, &known)| (address, known)).collect();
        blocks.sort_by_key(|(_, known)| known.number);
        blocks
    }

    pub(super) fn apply(&mut self, event: &HistoryEvent) -> CountChange {
        let mut change = CountChange { counters: true, ..CountChange::default() };
        match event.action {
            EventAction::Allocate => {
                change.ended = self.end(event.address);
                change.began = Some(self.begin(event.address, event.bytes, event.kind));
            }
            EventAction::FreeRequested => {
                change.ended = self.end(event.address);
                if let Some(known) = change.ended.filter(|_| self.follows_completion) {
                    self.leave(event.address, known.bytes);
                }
            }
            EventAction::FreeCompleted => {
                if let Some(bytes) = self.leaving.remove(&event.address) {
                    self.pending = self.pending.saturating_sub(bytes);
                } else if !self.follows_completion {
                    change.ended = self.end(event.address);
                }
            }
            EventAction::RegionReserved | EventAction::Mapped => {
                self.reserved = self.reserved.saturating_add(event.bytes);
            }
            EventAction::RegionReleased | EventAction::Unmapped => {
                self.reserved = self.reserved.saturating_sub(event.bytes);
            }
            EventAction::ExternalAdopted | EventAction::ExternalFreed => self.external.note(event),
            EventAction::Use
            | EventAction::OutOfMemory
            | EventAction::Refused
            | EventAction::Snapshot
            | EventAction::Annotation => {
                change.counters = false;
            }
        }
        change
    }

    fn begin(&mut self, address: u64, bytes: u64, kind: MemoryKind) -> CountedBlock {
        let known = CountedBlock { bytes, kind, number: self.next };
        self.next += 1;
        self.blocks.insert(address, known);
        let live = &mut self.live[kind.index()];
        *live = live.saturating_add(bytes);
        known
    }

    fn end(&mut self, address: u64) -> Option<CountedBlock> {
        let known = self.blocks.remove(&address)?;
        let live = &mut self.live[known.kind.index()];
        *live = live.saturating_sub(known.bytes);
        Some(known)
    }

    fn leave(&mut self, address: u64, bytes: u64) {
        self.pending = self.pending.saturating_add(bytes);
        if let Some(before) = self.leaving.insert(address, bytes) {
            self.pending = self.pending.saturating_sub(before);
        }
    }
}
