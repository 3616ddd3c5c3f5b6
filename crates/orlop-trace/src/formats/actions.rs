//! What happened, by name and by number, as files have it.

use crate::history::EventAction;

/// Each with its name in text files. The place in this table is its number in binary files: add at the end only.
const ACTIONS: [(EventAction, &str); 11] = [
    (EventAction::Allocate, "allocate"),
    (EventAction::FreeRequested, "free_requested"),
    (EventAction::FreeCompleted, "free_completed"),
    (EventAction::Use, "use"),
    (EventAction::RegionGained, "region_gained"),
    (EventAction::RegionLost, "region_lost"),
    (EventAction::Mapped, "mapped"),
    (EventAction::Unmapped, "unmapped"),
    (EventAction::OutOfMemory, "out_of_memory"),
    (EventAction::Snapshot, "snapshot"),
    (EventAction::Annotation, "annotation"),
];

/// Its number in files and records.
pub(crate) const fn code(action: EventAction) -> u8 {
    match action {
        EventAction::Allocate => 0,
        EventAction::FreeRequested => 1,
        EventAction::FreeCompleted => 2,
        EventAction::Use => 3,
        EventAction::RegionGained => 4,
        EventAction::RegionLost => 5,
        EventAction::Mapped => 6,
        EventAction::Unmapped => 7,
        EventAction::OutOfMemory => 8,
        EventAction::Snapshot => 9,
        EventAction::Annotation => 10,
    }
}

/// The action of a number.
pub(crate) fn of_code(code: u8) -> Option<EventAction> {
    ACTIONS.get(usize::from(code)).map(|&(action, _)| action)
}

pub(super) fn name(action: EventAction) -> &'static str {
    ACTIONS[usize::from(code(action))].1
}

pub(super) fn of_name(name: &[u8]) -> Option<EventAction> {
    ACTIONS.iter().find(|(_, known)| known.as_bytes() == name).map(|&(action, _)| action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for (place, (action, name)) in (0..).zip(ACTIONS) {
            assert_eq!(code(action), place);
            assert_eq!(of_code(place), Some(action));
            assert_eq!(super::name(action), name);
            assert_eq!(of_name(name.as_bytes()), Some(action));
        }
        assert_eq!(of_code(11), None);
        assert_eq!(of_name(b"free"), None);
    }
}
