//! Size classes: multiples of 64 bytes up to 4 KiB, then 32 steps to each doubling.
//!
//! A request is rounded up to its class, so that whatever is returned serves the next request of the class. At most
//! a 32nd is wasted above 4 KiB, half of that in the mean, and nothing for the round numbers that shapes like to
//! make. Free chunks are indexed by the largest class that they hold: each chunk in a class's list, or in a later
//! one, fits.

use orlop_core::Alignment;

/// Steps to a doubling. (Under loom few classes: threads have small stacks there.)
const STEPS_LOG2: u32 = if cfg!(loom) { 0 } else { 5 };

/// What all sizes are multiples of, and addresses too.
pub(super) const GRANULE: Alignment = Alignment::CPU;

/// Up to twice this, 32 steps to a doubling are steps of one granule or less, and steps are one granule.
const LINEAR_LOG2: u32 = GRANULE.log2() + STEPS_LOG2;

/// The largest class has 256 GiB; larger requests are not cached.
const LARGEST_LOG2: u32 = if cfg!(loom) { 20 } else { 38 };

/// How many classes there are.
pub(super) const CLASSES: usize = ((LARGEST_LOG2 - LINEAR_LOG2 + 1) << STEPS_LOG2) as usize;

/// The smallest class that holds `bytes`; [`CLASSES`] or more if there is none, or for zero bytes.
#[inline(always)]
pub(super) fn class_for(bytes: usize) -> usize {
    // One less, so that a class's own size is its last. Zero wraps around, past all classes.
    let below = bytes.wrapping_sub(1);
    // Up to 4 KiB steps are one granule long: two doublings, of which the first begins at nothing.
    let doubling = (below | (1 << LINEAR_LOG2)).ilog2() - LINEAR_LOG2;
    ((doubling << STEPS_LOG2) as usize) + (below >> (doubling + GRANULE.log2()))
}

/// The size of a class.
#[inline]
pub(super) fn size_of_class(class: usize) -> usize {
    let doubling = (class >> STEPS_LOG2).saturating_sub(1);
    (class - (doubling << STEPS_LOG2) + 1) << (GRANULE.log2() as usize + doubling)
}

/// The largest class whose size is at most `bytes`, which is at least the granule.
#[inline]
pub(super) fn class_within(bytes: usize) -> usize {
    (class_for(bytes + 1) - 1).min(CLASSES - 1)
}
