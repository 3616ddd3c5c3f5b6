//! Inconsistencies of a source. They are reported, and the rest of the source is used.

use crate::formats::DeviceLabel;
use std::fmt;

/// The maximum number of warnings in a history. The last one then counts the others
/// ([`HistoryWarning::More`]).
pub const MAX_WARNINGS: usize = 100;

/// An inconsistency in a recording that does not prevent reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryWarning {
    /// A block is freed that was never allocated and is not in the state at the end.
    FreedUnknown {
        /// The device.
        device: u32,
        /// The index of the event.
        event: usize,
        /// The block.
        address: u64,
    },
    /// A block is allocated over a live one.
    Overlap {
        /// The device.
        device: u32,
        /// The index of the event.
        event: usize,
        /// The new block.
        address: u64,
    },
    /// A block that is live by the events is in no segment.
    NotInSegments {
        /// The device.
        device: u32,
        /// The block.
        address: u64,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The blocks of a segment do not cover it.
    BrokenSegment {
        /// The device.
        device: u32,
        /// The segment.
        address: u64,
    },
    /// A block is freed with another size than it was allocated with.
    SizeDiffers {
        /// The device.
        device: u32,
        /// The index of the event.
        event: usize,
        /// The block.
        address: u64,
    },
    /// An event reserves, releases, maps or unmaps a region and contradicts the regions around it.
    RegionMisfit {
        /// The device.
        device: u32,
        /// The index of the event.
        event: usize,
        /// The region.
        address: u64,
    },
    /// An event of an unknown kind. It is skipped.
    UnknownAction {
        /// The device.
        device: u32,
        /// Its index in the source.
        event: usize,
    },
    /// The totals that the source counts contradict the events.
    TotalMisfit {
        /// The device.
        device: u32,
        /// The index of the event after which they were counted.
        event: usize,
    },
    /// The source has no addresses of blocks: a free was paired with the latest live block of its size.
    NoAddresses {
        /// The device.
        device: u32,
    },
    /// The file is cut off. Everything before that is used.
    CutOff {
        /// The offset in bytes at which the last whole part ends.
        at: u64,
    },
    /// The file is damaged. Everything before the damaged part is used.
    Damaged {
        /// The offset in bytes at which the damaged part begins.
        at: u64,
    },
    /// The recorder lost events: they were overwritten before they could be written, or the file had reached
    /// its maximum size.
    EventsLost {
        /// The number of events.
        count: u64,
    },
    /// Further warnings that are not kept.
    More {
        /// The number of warnings.
        count: u64,
    },
}

impl HistoryWarning {
    /// Returns the number of warnings, including those that are only counted ([`HistoryWarning::More`]).
    #[must_use]
    pub fn count(warnings: &[Self]) -> u64 {
        let count = |warning: &Self| if let Self::More { count } = *warning { count } else { 1 };
        warnings.iter().map(count).fold(0, u64::saturating_add)
    }

    /// Adds the warning to a list, or counts it if the list has [`MAX_WARNINGS`].
    pub fn add_to(self, warnings: &mut Vec<Self>) {
        if let Self::EventsLost { count: more } = self
            && let Some(Self::EventsLost { count }) =
                warnings.iter_mut().find(|warning| matches!(warning, Self::EventsLost { .. }))
        {
            *count = count.saturating_add(more);
            return;
        }
        let new = if let Self::More { count } = self { count } else { 1 };
        let full = warnings.len() + 1 >= MAX_WARNINGS;
        match warnings.last_mut() {
            Some(Self::More { count }) => *count = count.saturating_add(new),
            _ if full => warnings.push(Self::More { count: new }),
            _ => warnings.push(self),
        }
    }
}

impl fmt::Display for HistoryWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages number events from 1.
        let at =
            |device: u32, event: usize| format!("{}, event {}", DeviceLabel(device), event.saturating_add(1));
        match *self {
            Self::FreedUnknown { device, event, address } => {
                write!(f, "{}: frees a block at {address:#x} that is not live", at(device, event))
            }
            Self::Overlap { device, event, address } => {
                write!(f, "{}: allocates at {address:#x}, where a block is live", at(device, event))
            }
            Self::NotInSegments { device, address, bytes } => {
                let device = DeviceLabel(device);
                write!(f, "{device}: the block of {bytes} bytes at {address:#x} is in no segment")
            }
            Self::BrokenSegment { device, address } => {
                let device = DeviceLabel(device);
                write!(f, "{device}: the blocks of the segment at {address:#x} do not cover it")
            }
            Self::SizeDiffers { device, event, address } => {
                let at = at(device, event);
                write!(f, "{at}: frees {address:#x} with another size than it was allocated with")
            }
            Self::RegionMisfit { device, event, address } => {
                let at = at(device, event);
                write!(f, "{at}: changes the region at {address:#x}, which contradicts the regions there")
            }
            Self::UnknownAction { device, event } => {
                write!(f, "{}: the action is unknown to this reader", at(device, event))
            }
            Self::TotalMisfit { device, event } => {
                write!(f, "{}: the totals that the source counted contradict the events", at(device, event))
            }
            Self::NoAddresses { device } => {
                let device = DeviceLabel(device);
                write!(f, "{device}: addresses are not recorded: frees are paired with blocks by size")
            }
            Self::CutOff { at } => write!(f, "the file is cut off: what follows byte {at} is incomplete"),
            Self::Damaged { at } => write!(f, "the file is damaged: nothing from byte {at} on can be used"),
            Self::EventsLost { count } => write!(f, "the recorder lost {count} events"),
            Self::More { count } => write!(f, "and {count} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_hundred_are_stored() {
        let mut warnings = Vec::new();
        for event in 0..250 {
            HistoryWarning::UnknownAction { device: 0, event }.add_to(&mut warnings);
        }
        HistoryWarning::More { count: 7 }.add_to(&mut warnings);
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert_eq!(warnings[98], HistoryWarning::UnknownAction { device: 0, event: 98 });
        assert_eq!(warnings[99], HistoryWarning::More { count: 151 + 7 });
        assert_eq!(warnings[99].to_string(), "and 158 more");
        assert_eq!(HistoryWarning::count(&warnings), 257);

        let mut lost = vec![HistoryWarning::CutOff { at: 1 }];
        for count in [3, 4] {
            HistoryWarning::EventsLost { count }.add_to(&mut lost);
        }
        assert_eq!(lost[1..], [HistoryWarning::EventsLost { count: 7 }]);

        let mut mixed = Vec::new();
        for event in 0..250 {
            HistoryWarning::More { count: event }.add_to(&mut mixed);
            HistoryWarning::UnknownAction { device: 0, event: 0 }.add_to(&mut mixed);
        }
        assert!(mixed.len() <= MAX_WARNINGS);
        assert_eq!(HistoryWarning::count(&mixed), (0..250).sum::<u64>() + 250);
    }
}
