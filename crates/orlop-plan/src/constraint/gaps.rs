//! Lifetimes with gaps: a buffer keeps its offset, and others have its bytes in between.

use super::flat::members;
use super::merged;
use crate::{Problem, ProblemBuilder, ProblemError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

impl ProblemBuilder {
    /// Adds a gap to a lifetime: times at which the buffer is not live, although it is before and after. Its
    /// offset stays the same, and other buffers may have its bytes. Gaps may overlap.
    ///
    /// Where a buffer with gaps has parts, or is one, the whole is live whenever one of them is.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, ProblemBuilder, verify};
    ///
    /// let mut builder = ProblemBuilder::new();
    /// let state = builder.push(Buffer::unaligned(0..9, 100))?;
    /// let between = builder.push(Buffer::unaligned(3..5, 100))?;
    /// builder.gap(state, 2..6)?;
    /// let problem = builder.finish();
    /// assert!(problem.lifetimes(state).eq([0..2, 6..9]));
    /// let plan = Planner::new().plan(&problem);
    /// verify(&problem, &plan)?;
    /// assert_eq!(plan.offset(state), plan.offset(between));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if the gap is empty or not within the lifetime, or if no time is left at which the
    /// buffer is live. Nothing is changed then.
    pub fn gap(&mut self, index: usize, gap: Range<u64>) -> Result<(), ProblemError> {
        self.existing(index)?;
        let buffer = self.problem.buffers()[index];
        if gap.is_empty() || gap.start < buffer.start || buffer.end < gap.end {
            return Err(ProblemError::InvalidGap { index, start: gap.start, end: gap.end });
        }
        let gaps = &mut self.problem.constraints.gaps;
        let mut all = gaps.get(&index).cloned().unwrap_or_default();
        let (start, end) = (gap.start, gap.end);
        // Gaps that are given in order of time are appended.
        match all.last_mut().filter(|last| last.start <= start) {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            Some(_) => all.push(gap),
            None => {
                all.push(gap);
                all = merged(all);
            }
        }
        if matches!(&all[..], [all] if *all == (buffer.start..buffer.end)) {
            return Err(ProblemError::InvalidGap { index, start, end });
        }
        gaps.insert(index, all);
        Ok(())
    }
}

impl Problem {
    /// Returns the times within its lifetime at which a buffer is not live, in order.
    #[must_use]
    pub fn gaps(&self, index: usize) -> &[Range<u64>] {
        self.constraints.gaps.get(&index).map_or(&[], |gaps| gaps)
    }

    /// Returns the times at which a buffer is live, in order: one range without gaps. Empty if there is no
    /// such buffer.
    pub fn lifetimes(&self, index: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let (start, end) = self.buffers().get(index).map_or((0, 0), |buffer| (buffer.start, buffer.end));
        let gaps = self.gaps(index);
        let starts = std::iter::once(start).chain(gaps.iter().map(|gap| gap.end));
        let ends = gaps.iter().map(|gap| gap.start).chain([end]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|lifetime| !lifetime.is_empty())
    }
}

/// The times at which buffers with gaps are live, or those with parts of which any has gaps; by buffer that
/// is no part.
#[derive(Debug, Default)]
pub(crate) struct InterruptedLifetimes(pub(crate) BTreeMap<usize, Vec<Range<u64>>>);

impl InterruptedLifetimes {
    pub(super) fn new(problem: &Problem) -> Self {
        let constraints = &problem.constraints;
        if constraints.gaps.is_empty() {
            return Self::default();
        }
        let members = members(problem);
        let root = |index: &usize| constraints.parts.get(index).map_or(*index, |&(whole, _)| whole);
        let mut interrupted = BTreeMap::new();
        for root in constraints.gaps.keys().map(root) {
            interrupted.entry(root).or_insert_with(|| {
                let parts = members.get(&root).into_iter().flatten().map(|&(part, _)| part);
                merged(parts.chain([root]).flat_map(|index| problem.lifetimes(index)).collect())
            });
        }
        Self(interrupted)
    }

    /// Returns the times at which a buffer is live, with its parts.
    pub(super) fn of(&self, problem: &Problem, index: usize) -> Cow<'_, [Range<u64>]> {
        let whole = || {
            let buffer = problem.constraints.whole(problem, index);
            Cow::Owned(std::iter::once(buffer.start..buffer.end).collect())
        };
        self.0.get(&index).map_or_else(whole, |times| Cow::Borrowed(&times[..]))
    }
}

/// Returns `true` if two lists of times, each in order and without overlaps, have one in common.
pub(crate) fn meet(one: &[Range<u64>], other: &[Range<u64>]) -> bool {
    let (few, many) = if one.len() < other.len() { (one, other) } else { (other, one) };
    few.iter().any(|time| {
        let next = many.get(many.partition_point(|other| other.end <= time.start));
        next.is_some_and(|next| next.start < time.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn gaps_are_merged_and_checked() {
        let mut builder = ProblemBuilder::new();
        builder.push(Buffer::unaligned(2..10, 1)).unwrap();
        let invalid = |start, end| Err(ProblemError::InvalidGap { index: 0, start, end });
        for gap in [1..4, 4..11, 5..5, 2..10] {
            assert_eq!(builder.gap(0, gap.clone()), invalid(gap.start, gap.end));
        }
        assert_eq!(builder.gap(1, 3..4), Err(ProblemError::NoBuffer { index: 1 }));
        for gap in [6..7, 3..4, 7..8, 2..3] {
            builder.gap(0, gap).unwrap();
        }
        assert_eq!(builder.gap(0, 4..10), invalid(4, 10));
        let problem = builder.finish();
        assert_eq!(problem.gaps(0), [2..4, 6..8]);
        assert!(problem.lifetimes(0).eq([4..6, 8..10]));
        assert_eq!((problem.gaps(1), problem.lifetimes(1).count()), (&[][..], 0));
    }

    #[test]
    fn times_meet_where_they_overlap() {
        let many = [0..2, 4..6, 8..9];
        for (time, expected) in [(2..4, false), (1..2, true), (5..8, true), (6..8, false), (9..12, false)] {
            assert_eq!(meet(&many, std::slice::from_ref(&time)), expected, "{time:?}");
        }
        assert!(!meet(&many, &[2..4, 6..8, 9..10, 11..12]));
        assert!(meet(&many, &[2..4, 6..8, 8..9, 11..12]));
    }
}
