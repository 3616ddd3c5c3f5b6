//! One thing to be placed: when it lives, how large it is, where it may begin.

use orlop_core::Alignment;
use std::ops::Range;

/// A buffer of a [`Problem`](crate::Problem): it lives in `start .. end`, the end excluded, so that one which
/// ends when another starts may have its bytes.
///
/// Time is whatever the caller counts in (steps of a graph, events of a trace, nanoseconds); only its order
/// matters to where buffers may lie. A buffer of no bytes is allowed, since real graphs have empty tensors:
/// it overlaps nothing and lies at 0.
///
/// ```
/// use orlop_core::Alignment;
/// use orlop_plan::Buffer;
///
/// let activation = Buffer::new(3..7, 4096);
/// assert_eq!(activation.alignment, Alignment::PLANNED);
/// assert!(activation.lives_with(&Buffer::new(6..9, 1)));
/// assert!(!activation.lives_with(&Buffer::new(7..9, 1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Buffer {
    /// The first moment at which it lives.
    pub start: u64,
    /// The first moment after it.
    pub end: u64,
    /// In bytes.
    pub size: u64,
    /// What its offset is a multiple of.
    pub alignment: Alignment,
}

impl Buffer {
    /// A buffer of `size` bytes at a multiple of 256 bytes ([`Alignment::PLANNED`]), as kernels on devices
    /// need it.
    #[must_use]
    pub const fn new(lifetime: Range<u64>, size: u64) -> Self {
        Self { start: lifetime.start, end: lifetime.end, size, alignment: Alignment::PLANNED }
    }

    /// A buffer of `size` bytes that may lie anywhere, as planners are compared with each other.
    #[must_use]
    pub const fn unaligned(lifetime: Range<u64>, size: u64) -> Self {
        Self::new(lifetime, size).aligned(Alignment::ONE)
    }

    /// The same at multiples of `alignment`. Counted from the plan's beginning: what the plan is laid into
    /// must be aligned as well.
    #[must_use]
    pub const fn aligned(self, alignment: Alignment) -> Self {
        Self { alignment, ..self }
    }

    /// Whether there is a moment at which both live.
    #[must_use]
    pub const fn lives_with(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The most bytes that it can take from a plan, with what its alignment leaves unused.
    pub(crate) fn largest_claim(&self) -> Option<u64> {
        if self.size == 0 { Some(0) } else { self.size.checked_add(alignment_bytes(self.alignment) - 1) }
    }
}

/// Alignments are of addresses; plans count in 64 bits on every machine.
pub(crate) const fn alignment_bytes(alignment: Alignment) -> u64 {
    1 << alignment.log2()
}

/// The smallest multiple of `alignment`, a power of two, that is at least `offset`.
///
/// The caller knows that there is one: a problem's claims add up to no more than 64 bits hold.
pub(crate) const fn round_up(offset: u64, alignment: u64) -> u64 {
    (offset + (alignment - 1)) & !(alignment - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_for_devices_unless_said_otherwise() {
        let alignments = [Buffer::new(0..1, 1), Buffer::unaligned(0..1, 1)].map(|buffer| buffer.alignment);
        assert_eq!(alignments.map(Alignment::bytes), [256, 1]);
        let wide = Buffer::new(0..1, 1).aligned(Alignment::new(4096).unwrap());
        assert_eq!(wide.alignment.bytes(), 4096);
    }

    #[test]
    fn claims_have_room_for_the_gap_below() {
        let aligned = |size| Buffer::new(0..1, size).largest_claim();
        assert_eq!((aligned(0), aligned(1), aligned(u64::MAX)), (Some(0), Some(256), None));
        assert_eq!(Buffer::unaligned(0..1, u64::MAX).largest_claim(), Some(u64::MAX));
    }

    #[test]
    fn rounding() {
        assert_eq!([0, 1, 256, 257].map(|offset| round_up(offset, 256)), [0, 256, 256, 512]);
        assert_eq!(round_up(7, 1), 7);
    }
}
