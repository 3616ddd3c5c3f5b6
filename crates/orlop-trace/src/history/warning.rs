//! What does not fit together in a source: told, not hidden, and not in the way of the rest.

use std::fmt;

/// The most warnings that a history keeps, the last of which then counts the others
/// ([`HistoryWarning::More`]).
pub const MAX_WARNINGS: usize = 100;

/// An inconsistency in a recording, which reading survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryWarning {
    /// A block is freed that was never allocated, nor there at the end as it would have to be.
    FreedUnknown {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The block.
        address: u64,
    },
    /// A block is allocated over one that lives.
    Overlap {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The new block.
        address: u64,
    },
    /// A block lives by the events, at the end or for a while, and no segment has it.
    NotInSegments {
        /// Which device.
        device: u32,
        /// The block.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// The blocks of a segment do not cover it.
    BrokenSegment {
        /// Which device.
        device: u32,
        /// The segment.
        address: u64,
    },
    /// The bytes of a freed block are not those that were allocated.
    SizeDiffers {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The block.
        address: u64,
    },
    /// A region is gained or lost, mapped or unmapped, where that does not fit the regions around it.
    RegionMisfit {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The region.
        address: u64,
    },
    /// An event of a kind that is not known. It is left out.
    UnknownAction {
        /// Which device.
        device: u32,
        /// Its place in the source, from 0.
        event: usize,
    },
    /// The bytes that the source counts do not follow from the events.
    TotalMisfit {
        /// Which device.
        device: u32,
        /// The place of the event after which it counts them, from 0.
        event: usize,
    },
    /// A file ends before its end. What it has up to there is used.
    CutOff {
        /// The byte at which the last whole part ends.
        at: u64,
    },
    /// A file is damaged. What it has before that is used.
    Damaged {
        /// The byte at which the damaged part begins.
        at: u64,
    },
    /// So many more warnings are not kept.
    More {
        /// How many.
        count: u64,
    },
}

impl HistoryWarning {
    /// How many there are, with those that are only counted ([`HistoryWarning::More`]).
    #[must_use]
    pub fn count(warnings: &[Self]) -> u64 {
        let count = |warning: &Self| if let Self::More { count } = *warning { count } else { 1 };
        warnings.iter().map(count).fold(0, u64::saturating_add)
    }

    /// Adds a warning that a file contains, in whatever order it has them. Beyond [`MAX_WARNINGS`] they are
    /// only counted.
    pub fn add_to(self, warnings: &mut Vec<Self>) {
        if warnings.len() < MAX_WARNINGS { warnings.push(self) } else { warn(warnings, self) }
    }
}

impl fmt::Display for HistoryWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Events count from 1 for people.
        let nth = |event: usize| event.saturating_add(1);
        match *self {
            Self::FreedUnknown { device, event, address } => {
                write!(
                    f,
                    "device {device}, event {}: frees a block at {address:#x} that is not there",
                    nth(event)
                )
            }
            Self::Overlap { device, event, address } => {
                write!(
                    f,
                    "device {device}, event {}: allocates at {address:#x}, where a block lives",
                    nth(event)
                )
            }
            Self::NotInSegments { device, address, bytes } => {
                write!(f, "device {device}: the block of {bytes} bytes at {address:#x} is in no segment")
            }
            Self::BrokenSegment { device, address } => {
                write!(f, "device {device}: the blocks of the segment at {address:#x} do not cover it")
            }
            Self::SizeDiffers { device, event, address } => {
                write!(
                    f,
                    "device {device}, event {}: frees {address:#x} with another size than it was allocated with",
                    nth(event)
                )
            }
            Self::RegionMisfit { device, event, address } => {
                write!(
                    f,
                    "device {device}, event {}: a region at {address:#x} comes or goes where it cannot",
                    nth(event)
                )
            }
            Self::UnknownAction { device, event } => {
                write!(f, "device {device}, event {}: what happened is not known to this reader", nth(event))
            }
            Self::TotalMisfit { device, event } => {
                write!(
                    f,
                    "device {device}, event {}: the bytes that the source counts do not follow from the events",
                    nth(event)
                )
            }
            Self::CutOff { at } => write!(f, "the file is cut off: what follows byte {at} is not whole"),
            Self::Damaged { at } => write!(f, "the file is damaged: nothing from byte {at} on can be used"),
            Self::More { count } => write!(f, "and {count} more"),
        }
    }
}

/// Adds a warning, or counts it if there are enough.
pub(crate) fn warn(warnings: &mut Vec<HistoryWarning>, warning: HistoryWarning) {
    let new = if let HistoryWarning::More { count } = warning { count } else { 1 };
    let full = warnings.len() + 1 >= MAX_WARNINGS;
    match warnings.last_mut() {
        Some(HistoryWarning::More { count }) => *count = count.saturating_add(new),
        _ if full => warnings.push(HistoryWarning::More { count: new }),
        _ => warnings.push(warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_are_kept_and_the_others_counted() {
        let mut warnings = Vec::new();
        for event in 0..250 {
            warn(&mut warnings, HistoryWarning::UnknownAction { device: 0, event });
        }
        warn(&mut warnings, HistoryWarning::More { count: 7 });
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert_eq!(warnings[98], HistoryWarning::UnknownAction { device: 0, event: 98 });
        assert_eq!(warnings[99], HistoryWarning::More { count: 151 + 7 });
        assert_eq!(warnings[99].to_string(), "and 158 more");
        assert_eq!(HistoryWarning::count(&warnings), 257);

        let mut told = Vec::new();
        for event in 0..250 {
            HistoryWarning::More { count: event }.add_to(&mut told);
            HistoryWarning::UnknownAction { device: 0, event: 0 }.add_to(&mut told);
        }
        assert!(told.len() <= MAX_WARNINGS + 1);
        assert_eq!(HistoryWarning::count(&told), (0..250).sum::<u64>() + 250);
    }
}
