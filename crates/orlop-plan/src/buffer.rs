//! A buffer to be placed: its lifetime, its size and its alignment.

use orlop_core::Alignment;
use std::ops::Range;

/// A buffer of a [`Problem`](crate::Problem). It is live in `start..end`, the end excluded: a buffer that
/// starts when another ends may have the same bytes.
///
/// Times have any unit (steps of a graph, events of a trace, nanoseconds); only their order matters. A buffer
/// without bytes is valid, because graphs have empty tensors: it overlaps nothing, and its offset is 0.
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
    /// The first time at which it is live.
    pub start: u64,
    /// The first time at which it is no longer live.
    pub end: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The alignment of its offset.
    pub alignment: Alignment,
}

impl Buffer {
    /// Creates a buffer of `size` bytes that is aligned to 256 bytes ([`Alignment::PLANNED`]), as kernels on
    /// devices require.
    #[must_use]
    pub const fn new(lifetime: Range<u64>, size: u64) -> Self {
        Self { start: lifetime.start, end: lifetime.end, size, alignment: Alignment::PLANNED }
    }

    /// Creates a buffer of `size` bytes without alignment.
    #[must_use]
    pub const fn unaligned(lifetime: Range<u64>, size: u64) -> Self {
        Self::new(lifetime, size).aligned(Alignment::ONE)
    }

    /// Sets the alignment of the offset. The memory that the plan is used for must be aligned as well.
    #[must_use]
    pub const fn aligned(self, alignment: Alignment) -> Self {
        Self { alignment, ..self }
    }

    /// Returns `true` if there is a time at which both are live.
    #[must_use]
    pub const fn lives_with(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the maximum of the bytes that it takes from a plan, with those that its alignment leaves
    /// unused.
    pub(crate) fn max_aligned_size(&self) -> Option<u64> {
        if self.size == 0 { Some(0) } else { self.size.checked_add(alignment_bytes(self.alignment) - 1) }
    }
}

/// Returns an alignment in bytes. Plans have 64 bits on every machine.
pub(crate) const fn alignment_bytes(alignment: Alignment) -> u64 {
    1 << alignment.log2()
}

/// Returns the smallest multiple of `alignment`, a power of two, that is at least `offset`.
///
/// It does not overflow: the sum of the aligned sizes of a problem fits into 64 bits.
pub(crate) const fn round_up(offset: u64, alignment: u64) -> u64 {
    (offset + (alignment - 1)) & !(alignment - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_for_devices_by_default() {
        let alignments = [Buffer::new(0..1, 1), Buffer::unaligned(0..1, 1)].map(|buffer| buffer.alignment);
        assert_eq!(alignments.map(Alignment::bytes), [256, 1]);
        let wide = Buffer::new(0..1, 1).aligned(Alignment::new(4096).unwrap());
        assert_eq!(wide.alignment.bytes(), 4096);
    }

    #[test]
    fn the_aligned_size_includes_the_gap_below() {
        let aligned = |size| Buffer::new(0..1, size).max_aligned_size();
        assert_eq!((aligned(0), aligned(1), aligned(u64::MAX)), (Some(0), Some(256), None));
        assert_eq!(Buffer::unaligned(0..1, u64::MAX).max_aligned_size(), Some(u64::MAX));
    }

    #[test]
    fn rounding() {
        assert_eq!([0, 1, 256, 257].map(|offset| round_up(offset, 256)), [0, 256, 256, 512]);
        assert_eq!(round_up(7, 1), 7);
    }
}
