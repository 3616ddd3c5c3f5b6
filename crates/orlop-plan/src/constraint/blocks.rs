//! Plans in several blocks of memory of limited size.
//!
//! The blocks are consecutive in the offsets of a plan: no buffer crosses a multiple of the limit.

use crate::buffer::alignment_bytes;
use crate::normal::SectionSpan;
use crate::{Plan, Problem, ProblemError};
use std::collections::BTreeMap;

impl Problem {
    /// Limits the size of a block of memory: the plan is for several blocks, of which each has at most
    /// `bytes` bytes. No buffer is in two of them: the block of a buffer is its offset divided by `bytes`,
    /// and its place there is the remainder.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, Problem, verify};
    ///
    /// let buffers = [60, 70, 30].map(|size| Buffer::unaligned(0..1, size));
    /// let problem = Problem::new(buffers)?.limit_blocks(100)?;
    /// let plan = Planner::new().plan(&problem);
    /// verify(&problem, &plan)?;
    /// let blocks: Vec<u64> = plan.block_sizes(&problem).into_keys().collect();
    /// assert_eq!(blocks, [0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProblemError::BlockLimit`] if a buffer is larger than a block, if the limit is no multiple of its
    /// alignment, or if a fixed offset is in two blocks; [`ProblemError::BlockOverflow`] if the blocks may
    /// exceed 2^64 bytes together.
    pub fn limit_blocks(mut self, bytes: u64) -> Result<Self, ProblemError> {
        for (index, buffer) in self.buffers().iter().enumerate() {
            let fits = buffer.size <= bytes && bytes.is_multiple_of(alignment_bytes(buffer.alignment));
            let limit = BlockLimit(bytes);
            let is_divided =
                || self.fixed_offset(index).is_some_and(|offset| limit.divides(offset, buffer.size));
            if bytes == 0 || !fits || is_divided() {
                return Err(ProblemError::BlockLimit { index, size: buffer.size, limit: bytes });
            }
        }
        let sizes = self.buffers().iter().map(|buffer| buffer.max_aligned_size().unwrap_or(u64::MAX));
        let total = BlockLimit(bytes).space_for(sizes.fold(0, u64::saturating_add));
        if self.constraints.space(total).is_none_or(|space| space == u64::MAX) {
            return Err(ProblemError::BlockOverflow { limit: bytes });
        }
        self.constraints.block_limit = BlockLimit(bytes);
        Ok(self)
    }

    /// Returns the maximum size of a block in bytes, if it is limited.
    #[must_use]
    pub fn block_limit(&self) -> Option<u64> {
        Some(self.constraints.block_limit.0).filter(|&bytes| bytes > 0)
    }
}

impl Plan {
    /// Returns the blocks that have buffers, each with the bytes that it needs: block 0 without a
    /// [limit](Problem::limit_blocks).
    #[must_use]
    pub fn block_sizes(&self, problem: &Problem) -> BTreeMap<u64, u64> {
        let limit = problem.block_limit().unwrap_or(u64::MAX);
        let mut sizes = BTreeMap::new();
        for (buffer, &offset) in problem.buffers().iter().zip(self.offsets()).filter(|(it, _)| it.size > 0) {
            let size = sizes.entry(offset / limit).or_insert(0);
            *size = (offset % limit).saturating_add(buffer.size).max(*size);
        }
        sizes
    }
}

/// The maximum size of a block in bytes; 0 without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockLimit(u64);

impl BlockLimit {
    /// No limit.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn is_some(self) -> bool {
        self.0 > 0
    }

    /// Returns the bytes in which buffers of `total` bytes have room, wherever the first one begins: of two
    /// consecutive blocks, more than half is in use.
    pub(crate) fn space_for(self, total: u64) -> u64 {
        let twice = || total.saturating_add(total).saturating_add(self.0).saturating_add(self.0);
        if self.is_some() { twice() } else { total }
    }

    /// Returns `true` if `size` bytes at `offset` are in two blocks.
    pub(crate) fn divides(self, offset: u64, size: u64) -> bool {
        self.0 > 0 && size > 0 && offset / self.0 != (offset + (size - 1)) / self.0
    }

    /// Returns the lowest offset from `offset` on at which `size` bytes are in one block.
    pub(crate) fn offset_from(self, offset: u64, size: u64) -> u64 {
        if self.divides(offset, size) { self.behind(offset) } else { offset }
    }

    /// Calls `found` with the offset and the room of each part of a hole, which is in one block and has
    /// `size` bytes; of several whole blocks, only the first. A hole that ends at [`u64::MAX`] has no end.
    /// Returns `false` as soon as `found` does.
    pub(crate) fn parts_of_hole(
        self,
        (start, end): (u64, u64),
        size: u64,
        found: &mut impl FnMut(u64, u64) -> bool,
    ) -> bool {
        let mut report = |start: u64, end: u64| {
            let room = end.saturating_sub(start);
            room < size || found(start, room)
        };
        if self.0 == 0 || start >= end {
            return report(start, end);
        }
        let border = self.behind(start);
        if !report(start, end.min(border)) {
            return false;
        }
        let behind = border.saturating_add(self.0);
        if end <= border || !report(border, end.min(behind)) {
            return end <= border;
        }
        let last = end - end % self.0;
        last < behind || end == u64::MAX || report(last, end)
    }

    /// Returns the offsets above `offset` where a span is next to a border: the nearest below the next
    /// border, if there is one, and that border.
    pub(crate) fn next_to_border(self, span: &SectionSpan, offset: u64) -> impl Iterator<Item = u64> {
        let border = self.is_some().then(|| self.behind(offset));
        let below = border.and_then(|border| border.checked_sub(span.size));
        let below = below.map(|below| span.offset_below(below)).filter(move |&below| below > offset);
        below.into_iter().chain(border)
    }

    /// Returns the end of the block of an offset.
    fn behind(self, offset: u64) -> u64 {
        (offset - offset % self.0).saturating_add(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    fn parts(limit: u64, hole: (u64, u64), size: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        BlockLimit(limit).parts_of_hole(hole, size, &mut |offset, room| {
            found.push((offset, room));
            true
        });
        found
    }

    #[test]
    fn holes_are_divided_at_borders() {
        assert_eq!(parts(0, (5, 50), 3), [(5, 45)]);
        assert_eq!(parts(10, (5, 9), 3), [(5, 4)]);
        assert_eq!(parts(10, (5, 12), 3), [(5, 5)]);
        assert_eq!(parts(10, (5, 43), 3), [(5, 5), (10, 10), (40, 3)]);
        assert_eq!(parts(10, (8, u64::MAX), 7), [(10, 10)]);
        assert_eq!(parts(10, (10, 20), 10), [(10, 10)]);
        assert_eq!(parts(10, (7, 3), 1), []);
    }

    #[test]
    fn limits_that_buffers_do_not_have_are_refused() {
        let problem = Problem::new([Buffer::new(0..1, 256), Buffer::unaligned(0..1, 300)]).unwrap();
        let refused = |limit| problem.clone().limit_blocks(limit).unwrap_err();
        assert_eq!(refused(0), ProblemError::BlockLimit { index: 0, size: 256, limit: 0 });
        assert_eq!(refused(300), ProblemError::BlockLimit { index: 0, size: 256, limit: 300 });
        assert_eq!(refused(256), ProblemError::BlockLimit { index: 1, size: 300, limit: 256 });
        assert_eq!(refused(1 << 63), ProblemError::BlockOverflow { limit: 1 << 63 });
        assert_eq!(problem.clone().limit_blocks(512).unwrap().block_limit(), Some(512));
        assert_eq!(problem.block_limit(), None);
    }
}
