//! Size classes: multiples of 64 bytes up to 4 KiB, then 32 classes to each doubling.
//!
//! A request is rounded up to its class, so that a freed block serves the next request of the class. Above 4
//! KiB at most a 32nd is wasted, half of that on average, and nothing for the round sizes that shapes often
//! have. A free chunk is indexed by the largest class that it holds: every chunk in the list of a class, or
//! in a later list, fits.

use orlop_core::Alignment;

/// Classes to a doubling. (Few under loom, where threads have small stacks.)
const STEPS_LOG2: u32 = if cfg!(loom) { 0 } else { 5 };

/// All sizes and addresses are multiples of this.
pub(super) const GRANULE: Alignment = Alignment::CPU;

/// Below twice this size, classes are one granule apart: 32 classes to a doubling would be closer.
const LINEAR_LOG2: u32 = GRANULE.log2() + STEPS_LOG2;

/// The largest class has 256 GiB; larger requests are not cached.
const LARGEST_LOG2: u32 = if cfg!(loom) { 20 } else { 38 };

/// The number of classes.
pub(super) const CLASSES: usize = ((LARGEST_LOG2 - LINEAR_LOG2 + 1) << STEPS_LOG2) as usize;

/// Returns the smallest class that holds `bytes`; [`CLASSES`] or more if there is none, or for zero bytes.
#[inline(always)]
pub(super) fn class_for(bytes: usize) -> usize {
    // One less, so that a class ends with its own size. Zero wraps around, past all classes.
    let below = bytes.wrapping_sub(1);
    // Up to 4 KiB classes are one granule apart: two doublings, of which the first starts at zero.
    let doubling = (below | (1 << LINEAR_LOG2)).ilog2() - LINEAR_LOG2;
    ((doubling << STEPS_LOG2) as usize) + (below >> (doubling + GRANULE.log2()))
}

/// Returns the size of a class in bytes.
#[inline]
pub(super) fn size_of_class(class: usize) -> usize {
    let doubling = (class >> STEPS_LOG2).saturating_sub(1);
    (class - (doubling << STEPS_LOG2) + 1) << (GRANULE.log2() as usize + doubling)
}

/// Returns the largest class whose size is at most `bytes`, which is at least the granule.
#[inline]
pub(super) fn class_within(bytes: usize) -> usize {
    (class_for(bytes + 1) - 1).min(CLASSES - 1)
}
