//! Collecting events by device, and checking them against each other.

use crate::history::{DeviceHistory, EventAction, HistoryEvent, HistoryWarning, RefusalDetail};
use crate::{Result, TraceError};
use std::collections::{BTreeMap, HashSet};

/// The maximum number of devices in a history: a device takes a few bytes in a file and some kilobytes in a
/// tool. Readers and writers of all formats apply the same limit.
pub(crate) const MAX_DEVICES: u32 = 4096;

/// The devices of a history, within the limit of [`MAX_DEVICES`].
#[derive(Debug, Default)]
pub(super) struct AdmittedDevices(HashSet<u32>);

impl AdmittedDevices {
    /// Adds a device.
    pub(super) fn admit(&mut self, number: u32) -> Result<()> {
        let limit = MAX_DEVICES as usize;
        if self.0.len() >= limit && !self.0.contains(&number) {
            return Err(TraceError::TooManyDevices { limit });
        }
        self.0.insert(number);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that these devices fit into one history.
    pub(super) fn all(numbers: impl IntoIterator<Item = u32>) -> Result<()> {
        let mut admitted = Self::default();
        numbers.into_iter().try_for_each(|number| admitted.admit(number))
    }
}

/// The devices of a history that is being built, by number.
#[derive(Debug, Default)]
pub(crate) struct EventCollector {
    devices: BTreeMap<u32, DeviceHistory>,
    events: u32,
}

impl EventCollector {
    /// Returns the device with this number; creates it if it is new.
    pub(crate) fn device(&mut self, number: u32) -> &mut DeviceHistory {
        let new = || DeviceHistory { device: number, ..DeviceHistory::default() };
        self.devices.entry(number).or_insert_with(new)
    }

    /// Adds an event of a file, within the limits on devices and events.
    pub(super) fn push(&mut self, device: u32, event: HistoryEvent) -> Result<()> {
        let limit = MAX_DEVICES as usize;
        if self.devices.len() >= limit && !self.devices.contains_key(&device) {
            return Err(TraceError::TooManyDevices { limit });
        }
        let too_many = TraceError::TooManyEvents { limit: u32::MAX.into() };
        self.events = self.events.checked_add(1).ok_or(too_many)?;
        self.device(device).events.push(event);
        Ok(())
    }

    /// Adds what is known about the last event of a device, unless the event is no refusal.
    pub(crate) fn refusal(&mut self, number: u32, refusal: RefusalDetail) {
        let device = self.device(number);
        let Some(event) = device.events.len().checked_sub(1).and_then(|last| u32::try_from(last).ok()) else {
            return;
        };
        let is_refusal = device.events.last().is_some_and(|event| {
            event.action == EventAction::Refused || event.action == EventAction::OutOfMemory
        });
        if is_refusal && device.refusals.last().is_none_or(|last| last.event < event) {
            device.refusals.push(RefusalDetail { event, ..refusal });
        }
    }

    /// Returns the numbers of the devices, in order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.devices.keys().copied()
    }

    /// Returns the devices in order of their numbers.
    pub(crate) fn finish(self) -> Vec<DeviceHistory> {
        self.devices.into_values().collect()
    }
}

/// Returns the devices of these events, each with its device's number.
#[cfg(test)]
pub(crate) fn by_device(events: impl IntoIterator<Item = (u32, HistoryEvent)>) -> Vec<DeviceHistory> {
    let mut collector = EventCollector::default();
    for (device, event) in events {
        collector.device(device).events.push(event);
    }
    collector.finish()
}

/// Checks that freed blocks were allocated with the same size, and that no two blocks overlap. Returns the
/// blocks that are freed without having been allocated.
pub(super) fn check(history: &DeviceHistory, warnings: &mut Vec<HistoryWarning>) -> Vec<UnknownFree> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut unknown = Vec::new();
    let device = history.device;
    for (index, event) in history.events.iter().enumerate() {
        let HistoryEvent { address, bytes, .. } = *event;
        match event.action {
            // Blocks of zero bytes have no address.
            EventAction::Allocate if bytes > 0 => {
                if overlaps(&live, address, bytes) {
                    HistoryWarning::Overlap { device, event: index, address }.add_to(warnings);
                }
                live.insert(address, bytes);
                seen.insert(address);
            }
            EventAction::FreeRequested => match live.remove(&address) {
                Some(known) if known != bytes => {
                    HistoryWarning::SizeDiffers { device, event: index, address }.add_to(warnings);
                }
                None if bytes > 0 => {
                    unknown.push(UnknownFree {
                        event: index,
                        address,
                        bytes,
                        first: !seen.contains(&address),
                    });
                    seen.insert(address);
                }
                _ => {}
            },
            _ => {}
        }
    }
    unknown
}

/// A block that is freed without having been allocated.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnknownFree {
    pub(super) event: usize,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Whether there were no earlier events at its address.
    pub(super) first: bool,
}

fn overlaps(live: &BTreeMap<u64, u64>, address: u64, bytes: u64) -> bool {
    let end = address.saturating_add(bytes);
    let before = live.range(..end).next_back();
    before.is_some_and(|(&begin, &length)| begin.saturating_add(length) > address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disagreements_are_reported() {
        use EventAction::{Allocate, FreeRequested};
        let events = [
            HistoryEvent::new(Allocate, 100, 50),
            HistoryEvent::new(Allocate, 149, 1),
            HistoryEvent::new(FreeRequested, 149, 1),
            HistoryEvent::new(Allocate, 150, 50),
            HistoryEvent::new(Allocate, 50, 51),
            HistoryEvent::new(FreeRequested, 150, 49),
            HistoryEvent::new(FreeRequested, 150, 50),
            HistoryEvent::new(FreeRequested, 7, 8),
            HistoryEvent::new(Allocate, 7, 0),
        ];
        let device = by_device(events.map(|event| (3, event))).remove(0);
        let mut warnings = Vec::new();
        let unknown = check(&device, &mut warnings);
        assert_eq!(
            warnings,
            [
                HistoryWarning::Overlap { device: 3, event: 1, address: 149 },
                HistoryWarning::Overlap { device: 3, event: 4, address: 50 },
                HistoryWarning::SizeDiffers { device: 3, event: 5, address: 150 },
            ]
        );
        assert_eq!(
            unknown.iter().map(|one| (one.event, one.first)).collect::<Vec<_>>(),
            [(6, false), (7, true)]
        );
    }
}
