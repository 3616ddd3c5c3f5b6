//! Size classes: multiples of 64 bytes up to 2 KiB, then 32 steps to each doubling of (bytes + 2 KiB).
//!
//! A request is rounded up to its class, so that whatever is returned serves the next request of the class. Above
//! 2 KiB at most a sixteenth is wasted, soon less than a 32nd, 1.6 % in the mean. Free chunks are indexed by the
//! largest class that they hold: each chunk in a class's list, or in a later one, fits.
//!
//! The offset of 2 KiB is what makes one formula serve both parts: bytes below it and bytes above it are then steps
//! of the same logarithm.

use orlop_core::Alignment;

/// Steps to a doubling.
const STEPS_LOG2: u32 = 5;

/// What all sizes are multiples of, and addresses too.
pub(super) const GRANULE: Alignment = Alignment::CPU;

/// The first doubling begins here, in steps of one granule.
const OFFSET_LOG2: u32 = GRANULE.log2() + STEPS_LOG2;
const OFFSET: usize = 1 << OFFSET_LOG2;

/// Doublings: the largest class has 512 GiB. Larger requests are not cached.
const DOUBLINGS: u32 = 28;

/// How many classes there are.
pub(super) const CLASSES: usize = (DOUBLINGS << STEPS_LOG2) as usize;

/// The smallest class that holds `bytes`; [`CLASSES`] or more if there is none, or for zero bytes.
#[inline(always)]
pub(super) fn class_for(bytes: usize) -> usize {
    // One less, so that a class's own size is its last. Zero becomes the largest number.
    let place = bytes.wrapping_sub(1).saturating_add(OFFSET);
    let log2 = place.ilog2();
    // The steps of the doubling begin at 32.
    let step = place >> (log2 - STEPS_LOG2);
    // Wrapping: the first doubling's number is one less than zero, and its steps make up for that.
    ((log2 as usize) << STEPS_LOG2)
        .wrapping_add(step)
        .wrapping_sub(((OFFSET_LOG2 + 1) << STEPS_LOG2) as usize)
}

/// The size of a class.
#[inline]
pub(super) fn size_of_class(class: usize) -> usize {
    let (doubling, step) = (class >> STEPS_LOG2, class & ((1 << STEPS_LOG2) - 1));
    (((1 << STEPS_LOG2) + step + 1) << (GRANULE.log2() as usize + doubling)) - OFFSET
}

/// The largest class whose size is at most `bytes`, which is at least the granule.
#[inline]
pub(super) fn class_within(bytes: usize) -> usize {
    (class_for(bytes + 1) - 1).min(CLASSES - 1)
}
