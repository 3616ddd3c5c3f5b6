//! Pairs of buffers that may not share bytes, whenever they are live.

use super::{Constraints, overlap};
use crate::{Problem, ProblemBuilder, ProblemError};
use std::ops::Range;

impl ProblemBuilder {
    /// Forbids that two buffers share bytes, whenever they are live: because the end of one is not known, or
    /// another stream uses it.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, ProblemBuilder, verify};
    ///
    /// let mut builder = ProblemBuilder::new();
    /// let [sent, next] = [0..1, 1..2].map(|lifetime| Buffer::unaligned(lifetime, 100));
    /// let (sent, next) = (builder.push(sent)?, builder.push(next)?);
    /// builder.exclude(sent, next)?;
    /// let problem = builder.finish();
    /// let plan = Planner::new().plan(&problem);
    /// verify(&problem, &plan)?;
    /// assert_eq!(plan.height(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if the buffers share bytes already: at fixed offsets, or as parts of one buffer.
    /// Nothing is changed then.
    pub fn exclude(&mut self, one: usize, other: usize) -> Result<(), ProblemError> {
        self.existing(one)?;
        self.existing(other)?;
        self.flatten_parts();
        let constraints = &self.problem.constraints;
        if constraints.collides(&self.problem, one, other) {
            return Err(ProblemError::Excluded { index: one, other });
        }
        self.problem.constraints.exclusions.insert((one.min(other), one.max(other)));
        Ok(())
    }
}

impl Problem {
    /// Returns the pairs of buffers that may not share bytes, whenever they are live, the smaller index
    /// first.
    pub fn exclusions(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.constraints.exclusions.iter().copied()
    }
}

impl Constraints {
    /// Returns `true` if the places of both buffers are determined relative to each other, and have bytes in
    /// common.
    pub(super) fn collides(&self, problem: &Problem, one: usize, other: usize) -> bool {
        let ((root, bytes), (other_root, other_bytes)) =
            (self.bytes_in_root(problem, one), self.bytes_in_root(problem, other));
        let place = |root: usize| self.fixed.get(&root).copied();
        match (place(root), place(other_root)) {
            _ if root == other_root => overlap(&bytes, &other_bytes),
            // Planners keep the buffers apart in which they are.
            (Some(offset), Some(other_offset)) => {
                let of = |root: usize, offset: u64| offset..offset + problem.buffers()[root].size;
                overlap(&of(root, offset), &of(other_root, other_offset))
            }
            _ => false,
        }
    }

    /// Returns the buffer that is no part in which a buffer is, and its bytes there.
    fn bytes_in_root(&self, problem: &Problem, index: usize) -> (usize, Range<u64>) {
        let (root, offset) = self.parts.get(&index).copied().unwrap_or((index, 0));
        (root, offset..offset + problem.buffers()[index].size)
    }

    /// Returns an error if a pair that may not share bytes does.
    pub(super) fn check_exclusions(&self, problem: &Problem) -> Result<(), ProblemError> {
        let mut pairs = self.exclusions.iter();
        let violated = pairs.find(|&&(one, other)| self.collides(problem, one, other));
        violated.map_or(Ok(()), |&(index, other)| Err(ProblemError::Excluded { index, other }))
    }

    /// Returns an error if a pair that may not share bytes does when `part` is at `offset` in `whole`, both
    /// of which are no parts.
    pub(super) fn check_exclusions_with(
        &self,
        problem: &Problem,
        (part, whole, offset): (usize, usize, u64),
    ) -> Result<(), ProblemError> {
        let place = |index: usize| match self.bytes_in_root(problem, index) {
            (root, bytes) if root == part => (whole, bytes.start + offset..bytes.end + offset),
            place => place,
        };
        for &(index, other) in &self.exclusions {
            let ((root, bytes), (other_root, other_bytes)) = (place(index), place(other));
            if root == other_root && overlap(&bytes, &other_bytes) {
                return Err(ProblemError::Excluded { index, other });
            }
        }
        Ok(())
    }

    /// Returns the pairs of buffers that are no parts, and that planners keep apart.
    pub(super) fn excluded_roots(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let root = |index: usize| self.parts.get(&index).map_or(index, |&(whole, _)| whole);
        self.exclusions.iter().map(move |&(one, other)| (root(one), root(other)))
    }
}
