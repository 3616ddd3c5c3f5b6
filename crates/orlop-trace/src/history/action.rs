//! The actions of events, with the name and the number of each in files.

/// What an event records: an allocation, a free, a change of a segment. The order is that of the numbers in
/// binary files: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum EventAction {
    /// A block is allocated.
    Allocate,
    /// A block is freed. [`EventAction::FreeCompleted`] follows when no stream uses it any more.
    FreeRequested,
    /// The memory of a freed block is available again.
    FreeCompleted,
    /// Another stream uses a block (PyTorch: `record_stream`).
    Use,
    /// A region is reserved from the device (PyTorch: `segment_alloc`).
    RegionReserved,
    /// A region is released to the device (PyTorch: `segment_free`).
    RegionReleased,
    /// Pages are mapped into an expandable region (PyTorch: `segment_map`).
    Mapped,
    /// Pages are unmapped (PyTorch: `segment_unmap`).
    Unmapped,
    /// A request failed for lack of memory: on the device, or within a limit of its allocator. See
    /// [`RefusalDetail`](super::RefusalDetail).
    OutOfMemory,
    /// A snapshot is taken.
    Snapshot,
    /// The program sets an annotation; its name is the event's text.
    Annotation,
    /// A request was refused, which is no failure of the device: it was retried, or a budget refused it. See
    /// [`RefusalDetail`](super::RefusalDetail).
    Refused,
    /// External memory is counted from now on: a mapped file, or memory of another library. No allocator
    /// serves it, so replays leave it out.
    ExternalAdopted,
    /// External memory is given back.
    ExternalFreed,
}

/// The actions with their names in text files, in order of their numbers.
const ACTIONS: [(EventAction, &str); 14] = [
    (EventAction::Allocate, "allocate"),
    (EventAction::FreeRequested, "free_requested"),
    (EventAction::FreeCompleted, "free_completed"),
    (EventAction::Use, "use"),
    (EventAction::RegionReserved, "region_gained"),
    (EventAction::RegionReleased, "region_lost"),
    (EventAction::Mapped, "mapped"),
    (EventAction::Unmapped, "unmapped"),
    (EventAction::OutOfMemory, "out_of_memory"),
    (EventAction::Snapshot, "snapshot"),
    (EventAction::Annotation, "annotation"),
    (EventAction::Refused, "refused"),
    (EventAction::ExternalAdopted, "external_adopted"),
    (EventAction::ExternalFreed, "external_freed"),
];

impl EventAction {
    /// Returns the number of the action in binary files and on report pages.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the action with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        ACTIONS.get(usize::from(code)).map(|&(action, _)| action)
    }

    /// Returns the name of the action in text files.
    #[must_use]
    pub fn name(self) -> &'static str {
        ACTIONS[usize::from(self.code())].1
    }

    /// Returns `true` if the action reserves or maps a region.
    #[must_use]
    pub fn adds_region(self) -> bool {
        matches!(self, Self::RegionReserved | Self::Mapped)
    }

    /// Returns `true` if the action changes a region.
    #[must_use]
    pub fn is_region(self) -> bool {
        self.adds_region() || matches!(self, Self::RegionReleased | Self::Unmapped)
    }

    /// Returns the action with this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        ACTIONS.iter().find(|(_, known)| known.as_bytes() == name).map(|&(action, _)| action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for (place, (action, name)) in (0..).zip(ACTIONS) {
            assert_eq!(action.code(), place);
            assert_eq!(EventAction::from_code(place), Some(action));
            assert_eq!(action.name(), name);
            assert_eq!(EventAction::from_name(name.as_bytes()), Some(action));
        }
        assert_eq!(EventAction::from_code(14), None);
        assert_eq!(EventAction::from_name(b"free"), None);
    }
}
