//! What an engine tells of its memory, to those who watch: regions are gained and lost, pages mapped and unmapped.
//!
//! Pages that are moved are unmapped where they were and mapped where they go. Ranges of addresses are not told of: what has
//! no pages takes no memory.

use super::chunks::Index;
use super::inspect::DeviceSegment;
use crate::backing::DeviceBacking;
use crate::engine::Engine;
use orlop_alloc::{RegionAction, RegionEvent, RegionWatch};
use orlop_core::Device;
use std::sync::Arc;

impl<B: DeviceBacking> Engine<B> {
    /// From now on this watch is told, first of what is held. To be dropped with no lock held: those that have ended.
    #[must_use = "to be dropped with no lock held"]
    pub(crate) fn watch(&mut self, watch: &Arc<RegionWatch>) -> Vec<Arc<RegionWatch>> {
        let device = self.backing.device();
        let segments = self.segments();
        let held = segments.iter().map(|segment| {
            let action = if segment.expandable { RegionAction::Mapped } else { RegionAction::Gained };
            event(action, segment, device)
        });
        self.watches.add(watch, held)
    }

    /// Notes what happened to memory of a region.
    #[inline]
    pub(crate) fn note(&self, action: RegionAction, region: Index, address: usize, bytes: usize) {
        if self.watches.is_watched() {
            let stream = self.regions.get(region).map_or(0, |region| region.stream);
            let event = RegionEvent::new(action, address, bytes, self.backing.device());
            self.watches.note(event.stream(self.streams.id(stream)));
        }
    }

    /// The engine goes with all that it holds.
    pub(crate) fn note_all_gone(&self) {
        if self.watches.is_watched() {
            for segment in &self.segments() {
                let action = if segment.expandable { RegionAction::Unmapped } else { RegionAction::Lost };
                self.watches.note(event(action, segment, self.backing.device()));
            }
        }
    }
}

fn event(action: RegionAction, segment: &DeviceSegment, device: Device) -> RegionEvent {
    RegionEvent::new(action, segment.address, segment.bytes, device).stream(segment.stream)
}
