//! What happened, by name and by number, as files have it.

use crate::history::Action;

/// Each with its name in text files. The place in this table is its number in binary files: add at the end only.
const ACTIONS: [(Action, &str); 11] = [
    (Action::Allocate, "allocate"),
    (Action::FreeRequested, "free_requested"),
    (Action::FreeCompleted, "free_completed"),
    (Action::Use, "use"),
    (Action::RegionGained, "region_gained"),
    (Action::RegionLost, "region_lost"),
    (Action::Mapped, "mapped"),
    (Action::Unmapped, "unmapped"),
    (Action::OutOfMemory, "out_of_memory"),
    (Action::Snapshot, "snapshot"),
    (Action::Annotation, "annotation"),
];

/// Its number in files and records.
pub(crate) const fn code(action: Action) -> u8 {
    match action {
        Action::Allocate => 0,
        Action::FreeRequested => 1,
        Action::FreeCompleted => 2,
        Action::Use => 3,
        Action::RegionGained => 4,
        Action::RegionLost => 5,
        Action::Mapped => 6,
        Action::Unmapped => 7,
        Action::OutOfMemory => 8,
        Action::Snapshot => 9,
        Action::Annotation => 10,
    }
}

/// The action of a number.
pub(crate) fn of_code(code: u8) -> Option<Action> {
    ACTIONS.get(usize::from(code)).map(|&(action, _)| action)
}

pub(super) fn name(action: Action) -> &'static str {
    ACTIONS[usize::from(code(action))].1
}

pub(super) fn of_name(name: &[u8]) -> Option<Action> {
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
