//! Lifetimes with gaps: a buffer keeps its offset, and others have its bytes in between.

use super::flat::members;
use super::{merged, united};
use crate::{Buffer, Problem, ProblemBuilder, ProblemError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

impl ProblemBuilder {
    /// Adds a gap to a lifetime: times at which the buffer is not live, although it is before and after. Its
    /// offset stays the same, and other buffers may have its bytes. Gaps may overlap. Takes time in
    /// proportion to the number of gaps of the buffer that are later: see [`gaps`](Self::gaps) for many.
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
        let lifetime = self.lifetime_around(index, &gap)?;
        let (touched, all) = united(self.problem.gaps(index), &gap);
        if all == lifetime {
            return Err(ProblemError::InvalidGap { index, start: gap.start, end: gap.end });
        }
        let gaps = self.problem.constraints.gaps.entry(index).or_default();
        gaps.splice(touched, std::iter::once(all));
        Ok(())
    }

    /// Adds gaps to a lifetime, in any order, as [`gap`](Self::gap) does. Takes O(n log n) time for all `n`
    /// gaps of the buffer.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if a gap is empty or not within the lifetime, or if no time is left at which the
    /// buffer is live. Nothing is changed then.
    pub fn gaps(
        &mut self,
        index: usize,
        gaps: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(), ProblemError> {
        self.existing(index)?;
        let mut all = self.problem.gaps(index).to_vec();
        for gap in gaps {
            self.lifetime_around(index, &gap)?;
            all.push(gap);
        }
        let Some(last) = all.last().cloned() else { return Ok(()) };
        let all = merged(all);
        if all == [self.lifetime_around(index, &last)?] {
            return Err(ProblemError::InvalidGap { index, start: last.start, end: last.end });
        }
        self.problem.constraints.gaps.insert(index, all);
        Ok(())
    }

    /// Returns the lifetime of a buffer, in which a gap has to be.
    fn lifetime_around(&self, index: usize, gap: &Range<u64>) -> Result<Range<u64>, ProblemError> {
        let Buffer { start, end, .. } = self.problem.buffers()[index];
        match !gap.is_empty() && start <= gap.start && gap.end <= end {
            true => Ok(start..end),
            false => Err(ProblemError::InvalidGap { index, start: gap.start, end: gap.end }),
        }
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
    fn gaps_at_once_are_those_one_by_one() {
        let mut one_by_one = ProblemBuilder::new();
        one_by_one.push(Buffer::unaligned(0..20, 1)).unwrap();
        let mut at_once = one_by_one.clone();
        at_once.gaps(0, []).unwrap();
        let before = at_once.clone().finish();
        let invalid = |start, end| Err(ProblemError::InvalidGap { index: 0, start, end });
        assert_eq!(at_once.gaps(0, [2..3, 19..21]), invalid(19, 21));
        assert_eq!(at_once.gaps(0, [9..20, 0..9]), invalid(0, 9));
        assert_eq!(at_once.gaps(1, []), Err(ProblemError::NoBuffer { index: 1 }));
        assert_eq!(at_once.clone().finish(), before, "nothing has changed");
        for gaps in [[12..13, 4..6, 9..10], [3..4, 5..7, 10..13], [17..18, 8..9, 1..2]] {
            for gap in gaps.clone() {
                one_by_one.gap(0, gap).unwrap();
            }
            at_once.gaps(0, gaps).unwrap();
            assert_eq!(at_once.clone().finish(), one_by_one.clone().finish());
        }
        assert_eq!(at_once.finish().gaps(0), [1..2, 3..7, 8..13, 17..18]);
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
