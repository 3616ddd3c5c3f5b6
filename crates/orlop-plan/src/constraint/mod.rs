//! Constraints on offsets: fixed ones, reserved ranges, buffers that are parts of others, lifetimes with
//! gaps, pairs that may not share bytes, and blocks of limited size.
//!
//! Planners place buffers that may be anywhere. [`FlatProblem`] gives them one: a buffer with parts has the
//! lifetime of all of them, its parts have no bytes of their own, and a reserved range is a buffer at a fixed
//! offset that is live at all times.

mod blocks;
mod bound;
mod exclusions;
mod fixed;
mod flat;
mod gaps;
mod members;
mod occupied;
mod parts;
mod used;

pub(crate) use self::blocks::BlockLimit;
pub(crate) use self::flat::FlatProblem;
pub(crate) use self::gaps::{InterruptedLifetimes, meet};
use self::occupied::occupied;

use crate::buffer::alignment_bytes;
use crate::problem::Problem;
use crate::{Buffer, ProblemBuilder, ProblemError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The constraints of a problem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Constraints {
    /// The offsets of buffers that are not parts.
    pub(crate) fixed: BTreeMap<usize, u64>,
    /// In order, without overlaps.
    pub(crate) reserved: Vec<Range<u64>>,
    /// By part, the buffer that it is in, which is no part, and its offset there.
    pub(crate) parts: BTreeMap<usize, (usize, u64)>,
    /// By buffer with parts, its size with the lifetime and the alignment of all of them together.
    pub(crate) wholes: BTreeMap<usize, Buffer>,
    /// By buffer, the times in its lifetime at which it is not live, in order and without overlaps.
    pub(crate) gaps: BTreeMap<usize, Vec<Range<u64>>>,
    /// Pairs that may not share bytes, the smaller index first.
    pub(crate) exclusions: BTreeSet<(usize, usize)>,
    pub(crate) block_limit: BlockLimit,
    /// The end of the highest fixed buffer, with what its alignment adds, or reserved range.
    highest: u64,
}

impl Constraints {
    pub(crate) fn is_empty(&self) -> bool {
        let are_anywhere = self.fixed.is_empty() && self.reserved.is_empty() && self.parts.is_empty();
        are_anywhere && self.gaps.is_empty() && self.exclusions.is_empty() && !self.block_limit.is_some()
    }

    /// Returns the sum of `total`, the bytes of all buffers, and the end of what is fixed. `None` if it is
    /// beyond 64 bits: then buffers may not fit above it.
    pub(crate) fn space(&self, total: u64) -> Option<u64> {
        self.highest.checked_add(total)
    }

    /// Returns a buffer with the lifetime and the alignment of its parts.
    fn whole(&self, problem: &Problem, index: usize) -> Buffer {
        self.wholes.get(&index).copied().unwrap_or(problem.buffers()[index])
    }
}

/// Returns `true` if both ranges have a byte in common, which empty ones never have.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Merges ranges that overlap or touch, and sorts them.
pub(crate) fn merged<T: Copy + Ord>(mut ranges: Vec<Range<T>>) -> Vec<Range<T>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<T>> = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match merged.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    merged
}

/// Returns which of the ranges, that are merged and in order, overlap or touch another one, and the range of
/// all of these.
fn united(ranges: &[Range<u64>], other: &Range<u64>) -> (Range<usize>, Range<u64>) {
    let first = ranges.partition_point(|range| range.end < other.start);
    let behind = ranges.partition_point(|range| range.start <= other.end);
    let touched = &ranges[first..behind];
    let start = touched.first().map_or(other.start, |range| range.start.min(other.start));
    let end = touched.last().map_or(other.end, |range| range.end.max(other.end));
    (first..behind, start..end)
}

impl ProblemBuilder {
    /// Fixes the offset of a buffer, in bytes. Takes time in proportion to the numbers of parts, gaps and
    /// exclusions, and of buffers that were fixed before: see [`fix_all`](Self::fix_all) for many. A problem
    /// with fixed offsets or reserved ranges is planned with first fit and ejection alone, the first plan of
    /// which takes time in proportion to the number of pairs of buffers that are live together; if it is
    /// stopped before, buffers are stacked above what is fixed.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, ProblemBuilder, verify};
    ///
    /// let mut builder = ProblemBuilder::new();
    /// let state = builder.push(Buffer::unaligned(0..9, 100))?;
    /// let hidden = builder.push(Buffer::unaligned(2..4, 50))?;
    /// builder.fix(state, 64)?;
    /// builder.reserve(0..16)?;
    /// let problem = builder.finish();
    /// let plan = Planner::new().plan(&problem);
    /// verify(&problem, &plan)?;
    /// // The buffer does not fit between 16 and 64.
    /// assert_eq!((plan.offset(state), plan.offset(hidden)), (Some(64), Some(164)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if the offset is not aligned, if the buffer is a part of another or was fixed before,
    /// or if it would share bytes with a reserved range or with another fixed buffer that is live at the same
    /// time or may not share bytes. Nothing is changed then.
    pub fn fix(&mut self, index: usize, offset: u64) -> Result<(), ProblemError> {
        self.existing(index)?;
        self.flatten_parts();
        let (problem, constraints) = (&self.problem, &self.problem.constraints);
        let buffer = constraints.whole(problem, index);
        let bytes = offset..offset.saturating_add(buffer.size);
        let interrupted = InterruptedLifetimes::new(problem);
        let times = |index: usize| interrupted.of(problem, index);
        let is_excluded = |other: usize| {
            constraints.excluded_roots().any(|pair| pair == (index, other) || pair == (other, index))
        };
        for (&other, &other_offset) in constraints.fixed.iter().filter(|(other, _)| **other != index) {
            let other_bytes = other_offset..other_offset + problem.buffers()[other].size;
            if overlap(&bytes, &other_bytes) {
                if meet(&times(index), &times(other)) {
                    return Err(ProblemError::FixedOverlap { index, other });
                }
                if is_excluded(other) {
                    return Err(ProblemError::Excluded { index, other });
                }
            }
        }
        self.fix_alone(index, offset)
    }

    /// Fixes the offset of a buffer that shares no bytes with another fixed one.
    fn fix_alone(&mut self, index: usize, offset: u64) -> Result<(), ProblemError> {
        let (problem, constraints) = (&self.problem, &self.problem.constraints);
        if constraints.parts.contains_key(&index) || constraints.fixed.contains_key(&index) {
            return Err(ProblemError::PlacedTwice { index });
        }
        let buffer = constraints.whole(problem, index);
        let alignment = alignment_bytes(buffer.alignment);
        if !offset.is_multiple_of(alignment) {
            return Err(ProblemError::Misaligned { index, offset, alignment });
        }
        // Above what is fixed, there has to be room for the others.
        let fixed_total = self.fixed_total + problem.buffers()[index].max_aligned_size().unwrap_or(0);
        let end = buffer.max_aligned_size().and_then(|size| offset.checked_add(size));
        let end = end.filter(|end| end.checked_add(self.total - fixed_total).is_some());
        let end = end.ok_or(ProblemError::TotalOverflow { index, size: buffer.size })?;
        let bytes = offset..offset + buffer.size;
        let next = constraints.reserved.partition_point(|range| range.end <= bytes.start);
        if let Some(range) = constraints.reserved.get(next).filter(|range| overlap(range, &bytes)) {
            return Err(ProblemError::Reserved { index, start: range.start, end: range.end });
        }
        let constraints = &mut self.problem.constraints;
        constraints.fixed.insert(index, offset);
        constraints.highest = constraints.highest.max(end);
        self.fixed_total = fixed_total;
        Ok(())
    }

    /// Reserves a range of bytes: no buffer is placed there. It does not count as a part of the plan's
    /// height.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if a fixed buffer is there, or if the buffers may not fit above it.
    pub fn reserve(&mut self, range: Range<u64>) -> Result<(), ProblemError> {
        let constraints = &self.problem.constraints;
        for (&index, &offset) in &constraints.fixed {
            let size = self.problem.buffers()[index].size;
            if overlap(&range, &(offset..offset + size)) {
                return Err(ProblemError::Reserved { index, start: range.start, end: range.end });
            }
        }
        if range.end.checked_add(self.total).is_none() {
            return Err(ProblemError::ReservedOverflow { end: range.end });
        }
        let constraints = &mut self.problem.constraints;
        if !range.is_empty() {
            constraints.highest = constraints.highest.max(range.end);
            let (touched, all) = united(&constraints.reserved, &range);
            constraints.reserved.splice(touched, std::iter::once(all));
        }
        Ok(())
    }

    /// Gives a buffer an offset in bytes from an earlier plan, which it need not get. A planner begins with
    /// the plan that [`replan`](crate::replan) makes of all hints, and returns none that is higher. If that
    /// takes too long, or the planner is stopped, it begins without hints.
    ///
    /// # Errors
    ///
    /// [`ProblemError::NoBuffer`]
    pub fn hint(&mut self, index: usize, offset: u64) -> Result<(), ProblemError> {
        self.existing(index)?;
        self.problem.hints.insert(index, offset);
        Ok(())
    }

    pub(crate) fn existing(&self, index: usize) -> Result<(), ProblemError> {
        if index < self.problem.len() { Ok(()) } else { Err(ProblemError::NoBuffer { index }) }
    }
}

impl Problem {
    /// Returns the fixed offset of a buffer in bytes, if it has one.
    #[must_use]
    pub fn fixed_offset(&self, index: usize) -> Option<u64> {
        self.constraints.fixed.get(&index).copied()
    }

    /// Returns the offset of a buffer that an earlier plan had, in bytes: see [`ProblemBuilder::hint`].
    #[must_use]
    pub fn hint(&self, index: usize) -> Option<u64> {
        self.hints.get(&index).copied()
    }

    /// Returns the ranges of bytes in which no buffer is placed, in order.
    #[must_use]
    pub fn reserved(&self) -> &[Range<u64>] {
        &self.constraints.reserved
    }
}
