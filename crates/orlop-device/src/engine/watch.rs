//! Region events for observers: regions are reserved and released, pages are mapped and unmapped.
//!
//! A page that moves is unmapped at its old address and mapped at the new one. Reservations of addresses are
//! not reported: addresses without pages take no memory.

use super::chunks::Index;
use super::inspect::DeviceSegment;
use crate::backing::DeviceBacking;
use crate::engine::Engine;
use orlop_alloc::{RegionAction, RegionEvent, engine_support::RegionWatch};
use orlop_core::Device;
use std::sync::Arc;

impl<B: DeviceBacking> Engine<B> {
    /// Adds a watch. Its first events are the regions that are reserved now. Returns the watches that have
    /// ended: drop them with no lock held.
    #[must_use = "to be dropped with no lock held"]
    pub(crate) fn watch(&mut self, watch: &Arc<RegionWatch>) -> Vec<Arc<RegionWatch>> {
        let device = self.backing.device();
        let segments = self.segments();
        let reserved = segments.iter().map(|segment| {
            let action = if segment.expandable { RegionAction::Mapped } else { RegionAction::Reserved };
            event(action, segment, device)
        });
        self.watches.add(watch, reserved)
    }

    /// Reports a change of a region's memory.
    #[inline]
    pub(crate) fn note(&self, action: RegionAction, region: Index, address: usize, bytes: usize) {
        if self.watches.is_watched() {
            let stream = self.regions.get(region).map_or(0, |region| region.stream);
            let event = RegionEvent::new(action, address, bytes, self.backing.device());
            self.watches.note(event.stream(self.streams.id(stream)));
        }
    }

    /// Reports that all memory is released with the engine.
    pub(crate) fn note_all_gone(&self) {
        if self.watches.is_watched() {
            for segment in &self.segments() {
                let action = if segment.expandable { RegionAction::Unmapped } else { RegionAction::Released };
                self.watches.note(event(action, segment, self.backing.device()));
            }
        }
    }
}

fn event(action: RegionAction, segment: &DeviceSegment, device: Device) -> RegionEvent {
    RegionEvent::new(action, segment.address, segment.bytes, device).stream(segment.stream)
}
