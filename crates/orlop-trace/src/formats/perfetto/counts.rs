//! The counters of a device, event by event.

use crate::history::{Action, BlockState, DeviceHistory, Event};
use orlop_core::MemoryKind;
use std::collections::HashMap;

/// Bytes of a device at a moment.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) live: [u64; MemoryKind::COUNT],
    pub(super) reserved: u64,
    pub(super) pending: u64,
    blocks: HashMap<u64, Known>,
    /// Freed blocks that a stream may still use; only of histories that say when that ends.
    leaving: HashMap<u64, u64>,
    follows_completion: bool,
    next: u64,
}

/// A live block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) bytes: u64,
    kind: MemoryKind,
    /// Its number, in order of allocation.
    pub(super) number: u64,
}

/// What an event changed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    /// Any counter.
    pub(super) counters: bool,
    pub(super) began: Option<Known>,
    pub(super) ended: Option<Known>,
}

impl Counts {
    /// At the start of a device's history.
    pub(super) fn at_start(device: &DeviceHistory) -> Self {
        let has = |action| device.events.iter().any(|event| event.action == action);
        let follows_completion = has(Action::FreeRequested) && has(Action::FreeCompleted);
        let mut counts = Self { follows_completion, ..Self::default() };
        for block in &device.held {
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

    /// The blocks that live now, in order of their numbers.
    pub(super) fn blocks(&self) -> Vec<(u64, Known)> {
        let mut blocks: Vec<_> = self.blocks.iter().map(|(&address, &known)| (address, known)).collect();
        blocks.sort_by_key(|(_, known)| known.number);
        blocks
    }

    pub(super) fn apply(&mut self, event: &Event) -> Change {
        let mut change = Change { counters: true, ..Change::default() };
        match event.action {
            Action::Allocate => {
                change.ended = self.end(event.address);
                change.began = Some(self.begin(event.address, event.bytes, event.kind));
            }
            Action::FreeRequested => {
                change.ended = self.end(event.address);
                if let Some(known) = change.ended.filter(|_| self.follows_completion) {
                    self.leave(event.address, known.bytes);
                }
            }
            Action::FreeCompleted => {
                if let Some(bytes) = self.leaving.remove(&event.address) {
                    self.pending = self.pending.saturating_sub(bytes);
                } else if !self.follows_completion {
                    change.ended = self.end(event.address);
                }
            }
            Action::RegionGained | Action::Mapped => {
                self.reserved = self.reserved.saturating_add(event.bytes);
            }
            Action::RegionLost | Action::Unmapped => {
                self.reserved = self.reserved.saturating_sub(event.bytes);
            }
            Action::Use | Action::OutOfMemory | Action::Snapshot | Action::Annotation => {
                change.counters = false;
            }
        }
        change
    }

    fn begin(&mut self, address: u64, bytes: u64, kind: MemoryKind) -> Known {
        let known = Known { bytes, kind, number: self.next };
        self.next += 1;
        self.blocks.insert(address, known);
        let live = &mut self.live[kind.index()];
        *live = live.saturating_add(bytes);
        known
    }

    fn end(&mut self, address: u64) -> Option<Known> {
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
