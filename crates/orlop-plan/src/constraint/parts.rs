//! Buffers that are parts of others.
//!
//! While a problem is built, a part refers to the buffer in which it was placed, which may be a part itself.
//! Each search for the buffer that is no part shortens the way there (path compression), so that chains of
//! any length are built in near-linear time.

use crate::buffer::alignment_bytes;
use crate::{Buffer, Problem, ProblemBuilder, ProblemError};

impl ProblemBuilder {
    /// Places a buffer inside of another, `offset` bytes from its start: a view, an operand of a
    /// concatenation that is written where the result is, or, at 0, an alias. Both may have bytes in common
    /// while both are live, and so may several parts of one buffer. Parts may have parts.
    ///
    /// Planners keep the bytes of the whole free from the start of the first part to the end of the last one.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, ProblemBuilder, verify};
    ///
    /// let mut builder = ProblemBuilder::new();
    /// let [left, right] = [0..2, 1..2].map(|lifetime| Buffer::unaligned(lifetime, 100));
    /// let (left, right) = (builder.push(left)?, builder.push(right)?);
    /// let both = builder.push(Buffer::unaligned(1..4, 200))?;
    /// builder.place_in(left, both, 0)?;
    /// builder.place_in(right, both, 100)?;
    /// let problem = builder.finish();
    /// let plan = Planner::new().plan(&problem);
    /// verify(&problem, &plan)?;
    /// assert_eq!((plan.offsets(), plan.height()), (&[0, 100, 0][..], 200));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if the part is not inside or not aligned there, if it is a part already or has the
    /// whole as a part, if one of both has a fixed offset, or if buffers would share bytes that may not.
    /// Nothing is changed then.
    pub fn place_in(&mut self, part: usize, whole: usize, offset: u64) -> Result<(), ProblemError> {
        self.existing(part)?;
        self.existing(whole)?;
        let (root, root_offset) = self.root(whole);
        if !self.problem.constraints.exclusions.is_empty() {
            self.flatten_parts();
        }
        let (problem, constraints) = (&self.problem, &self.problem.constraints);
        let is_fixed = |index| constraints.fixed.contains_key(index);
        if constraints.parts.contains_key(&part) || root == part || is_fixed(&root) || is_fixed(&part) {
            return Err(ProblemError::PlacedTwice { index: part });
        }
        let inner = constraints.whole(problem, part);
        let room = problem.buffers()[whole].size.checked_sub(offset);
        if room.is_none_or(|room| room < inner.size) {
            return Err(ProblemError::NotInside { index: part, whole, offset });
        }
        let offset = root_offset + offset;
        let alignment = alignment_bytes(inner.alignment);
        if !offset.is_multiple_of(alignment) {
            return Err(ProblemError::Misaligned { index: part, offset, alignment });
        }
        constraints.check_exclusions_with(problem, (part, root, offset))?;
        let outer = constraints.whole(problem, root);
        let all = Buffer {
            start: outer.start.min(inner.start),
            end: outer.end.max(inner.end),
            alignment: outer.alignment.max(inner.alignment),
            ..outer
        };
        let constraints = &mut self.problem.constraints;
        self.has_nested_parts |= constraints.wholes.remove(&part).is_some();
        constraints.parts.insert(part, (root, offset));
        constraints.wholes.insert(root, all);
        Ok(())
    }

    /// Returns the buffer that is no part in which a buffer is, and its offset there.
    fn root(&mut self, index: usize) -> (usize, u64) {
        let parts = &mut self.problem.constraints.parts;
        let mut way = Vec::new();
        let mut root = index;
        while let Some(&(whole, offset)) = parts.get(&root) {
            way.push((root, offset));
            root = whole;
        }
        let mut total = 0;
        for &(part, offset) in way.iter().rev() {
            total += offset;
            parts.insert(part, (root, total));
        }
        (root, total)
    }

    /// Makes all parts refer to the buffers that are no parts.
    pub(crate) fn flatten_parts(&mut self) {
        if std::mem::take(&mut self.has_nested_parts) {
            let parts: Vec<usize> = self.problem.constraints.parts.keys().copied().collect();
            for part in parts {
                self.root(part);
            }
        }
    }
}

impl Problem {
    /// Returns the buffer in which a buffer is placed, which itself is no part, and the offset there in
    /// bytes; `None` for a buffer that is no part.
    #[must_use]
    pub fn part_of(&self, index: usize) -> Option<(usize, u64)> {
        self.constraints.parts.get(&index).copied()
    }
}
