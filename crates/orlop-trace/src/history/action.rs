//! The actions of events, with the name and the number that files have for each.

/// What an event of a recording records: an allocation, a free, a change of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventAction {
    /// A block was handed out.
    Allocate,
    /// A block was given back; [`EventAction::FreeCompleted`] follows when no stream uses it any more.
    FreeRequested,
    /// The memory of a block that was given back is free.
    FreeCompleted,
    /// Another stream uses a block (PyTorch: `record_stream`).
    Use,
    /// A region was gained from the device (PyTorch: `segment_alloc`).
    RegionReserved,
    /// A region went back to the device (PyTorch: `segment_free`).
    RegionReleased,
    /// Pages were mapped into a region that grows in place (PyTorch: `segment_map`).
    Mapped,
    /// Pages were unmapped (PyTorch: `segment_unmap`).
    Unmapped,
    /// A request failed.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// The program said something: the event's text.
    Annotation,
}

/// Each with its name in text files. The place in this table is its number in binary files: add at the end
/// only.
const ACTIONS: [(EventAction, &str); 11] = [
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
];

impl EventAction {
    /// Returns the number of the action in binary files and on report pages.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Allocate => 0,
            Self::FreeRequested => 1,
            Self::FreeCompleted => 2,
            Self::Use => 3,
            Self::RegionReserved => 4,
            Self::RegionReleased => 5,
            Self::Mapped => 6,
            Self::Unmapped => 7,
            Self::OutOfMemory => 8,
            Self::Snapshot => 9,
            Self::Annotation => 10,
        }
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
        assert_eq!(EventAction::from_code(11), None);
        assert_eq!(EventAction::from_name(b"free"), None);
    }
}
