//! Events sorted by device, and checked against each other.

use super::FormatError;
use crate::history::{DeviceHistory, EventAction, HistoryEvent, HistoryWarning};
use std::collections::{BTreeMap, HashMap, HashSet};

/// So many warnings are kept of a file; the others are counted.
const MAX_WARNINGS: usize = 100;

/// A history has no more devices: each costs whoever works on it some kilobytes, and a file a few bytes.
/// Readers and writers of all formats keep to it: what one writes the other reads.
pub(crate) const MAX_DEVICES: u32 = 4096;

/// Whether a device may be among so many: it is, or there is room for one more.
fn has_room(devices: usize, is_known: bool) -> Result<(), FormatError> {
    let limit = MAX_DEVICES as usize;
    if is_known || devices < limit { Ok(()) } else { Err(FormatError::TooManyDevices { limit }) }
}

/// Which devices there are: so many at most.
#[derive(Debug, Default)]
pub(super) struct AdmittedDevices(HashSet<u32>);

impl AdmittedDevices {
    /// Lets a device in, if it is known or there is room for one more.
    pub(super) fn admit(&mut self, number: u32) -> Result<(), FormatError> {
        has_room(self.0.len(), self.0.contains(&number))?;
        self.0.insert(number);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them may be in one history.
    pub(super) fn all(numbers: impl IntoIterator<Item = u32>) -> Result<(), FormatError> {
        let mut admitted = Self::default();
        numbers.into_iter().try_for_each(|number| admitted.admit(number))
    }
}

/// Devices in the making, by number.
#[derive(Debug, Default)]
pub(crate) struct EventCollector {
    places: HashMap<u32, usize>,
    devices: Vec<DeviceHistory>,
}

impl EventCollector {
    /// The device of this number, made if need be.
    pub(crate) fn device(&mut self, number: u32) -> &mut DeviceHistory {
        let place = *self.places.entry(number).or_insert_with(|| {
            self.devices.push(DeviceHistory { device: number, ..DeviceHistory::default() });
            self.devices.len() - 1
        });
        &mut self.devices[place]
    }

    /// The same, for numbers that a file says.
    pub(super) fn told(&mut self, number: u32) -> Result<&mut DeviceHistory, FormatError> {
        has_room(self.devices.len(), self.places.contains_key(&number))?;
        Ok(self.device(number))
    }

    /// In order of their numbers.
    pub(crate) fn finish(mut self) -> Vec<DeviceHistory> {
        self.devices.sort_by_key(|device| device.device);
        self.devices
    }
}

/// Events with their device's number, in order of time, by device.
pub(crate) fn by_device(
    events: impl IntoIterator<Item = (u32, HistoryEvent)>,
) -> Result<Vec<DeviceHistory>, FormatError> {
    let mut gather = EventCollector::default();
    for (device, event) in events {
        gather.told(device)?.events.push(event);
    }
    Ok(gather.finish())
}

/// Warnings, so many and a count.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    kept: Vec<HistoryWarning>,
    more: u64,
}

impl Warnings {
    pub(super) fn push(&mut self, warning: HistoryWarning) {
        if self.kept.len() < MAX_WARNINGS {
            self.kept.push(warning);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<HistoryWarning> {
        if self.more > 0 {
            self.kept.push(HistoryWarning::More { count: self.more });
        }
        self.kept
    }
}

/// Checks that what is freed was allocated, with the same size, and that no two blocks overlap. What was
/// freed without having been allocated is returned: the event's place, its block's address and size.
pub(super) fn check(device: &DeviceHistory, warnings: &mut Warnings) -> Vec<UnknownFree> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut unknown = Vec::new();
    let number = device.device;
    for (place, event) in device.events.iter().enumerate() {
        let HistoryEvent { address, bytes, .. } = *event;
        match event.action {
            // An empty block is nowhere.
            EventAction::Allocate if bytes > 0 => {
                if overlaps(&live, address, bytes) {
                    warnings.push(HistoryWarning::Overlap { device: number, event: place, address });
                }
                live.insert(address, bytes);
                seen.insert(address);
            }
            EventAction::FreeRequested => match live.remove(&address) {
                Some(known) if known != bytes => {
                    warnings.push(HistoryWarning::SizeDiffers { device: number, event: place, address });
                }
                None if bytes > 0 => {
                    unknown.push(UnknownFree {
                        event: place,
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

/// A block that is freed and was not allocated.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnknownFree {
    pub(super) event: usize,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Nothing happened at its address before.
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
    fn disagreements_are_told() {
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
        let device = by_device(events.map(|event| (3, event))).unwrap().remove(0);
        let mut warnings = Warnings::default();
        let unknown = check(&device, &mut warnings);
        assert_eq!(
            warnings.finish(),
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

    #[test]
    fn warnings_are_kept_up_to_a_number() {
        let mut warnings = Warnings::default();
        for place in 0..MAX_WARNINGS + 5 {
            warnings.push(HistoryWarning::Overlap { device: 0, event: place, address: 0 });
        }
        let kept = warnings.finish();
        assert_eq!((kept.len(), kept.last()), (MAX_WARNINGS + 1, Some(&HistoryWarning::More { count: 5 })));
    }
}
