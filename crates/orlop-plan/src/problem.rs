//! A planning problem: buffers that are checked once, when they are added.
//!
//! The checks are those that let every planner compute without overflow: lifetimes are not empty, and the sum
//! of all sizes, with the gaps of their alignments, is below 2^64. No useful plan is higher.

use crate::constraint::Constraints;
use crate::error::BufferRef;
use crate::spaces::Preferences;
use crate::{Buffer, ProblemError};
use std::collections::BTreeMap;

/// The maximum number of buffers in a problem: their indices, and those of twice as many events, fit into 32
/// bits.
pub const MAX_BUFFERS: usize = 1 << 30;

/// Buffers to be placed, in the order in which they were added.
///
/// ```
/// use orlop_plan::{Buffer, Problem};
///
/// let buffers = [(0..2, 100), (1..3, 50), (2..4, 100)];
/// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// assert_eq!((problem.len(), problem.lower_bound()), (3, 150));
/// # Ok::<(), orlop_plan::ProblemError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    buffers: Vec<Buffer>,
    names: BufferNames,
    pub(crate) constraints: Constraints,
    /// Offsets of an earlier plan.
    pub(crate) hints: BTreeMap<usize, u64>,
    pub(crate) preferences: Preferences,
}

impl Problem {
    /// Creates a problem of buffers without names. [`ProblemBuilder`] gives them names.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if a lifetime is empty, or the limits are exceeded.
    pub fn new(buffers: impl IntoIterator<Item = Buffer>) -> Result<Self, ProblemError> {
        let mut builder = ProblemBuilder::new();
        for buffer in buffers {
            builder.push(buffer)?;
        }
        Ok(builder.finish())
    }

    /// Returns the buffers, by index.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns the number of buffers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Returns `true` if there are no buffers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Returns the name of a buffer, if it has one.
    #[must_use]
    pub fn name(&self, index: usize) -> Option<&str> {
        self.names.get(index)
    }

    /// Returns `true` if any buffer has a name.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !self.names.ends.is_empty()
    }

    /// Creates a problem of buffers that are known to be valid.
    pub(crate) fn of_buffers(buffers: Vec<Buffer>) -> Self {
        Self { buffers, ..Self::default() }
    }

    pub(crate) fn buffer_ref(&self, index: usize) -> BufferRef {
        BufferRef { index, name: self.name(index).map(Into::into) }
    }
}

/// Builds a [`Problem`], and checks each buffer when it is added.
///
/// ```
/// use orlop_plan::{Buffer, ProblemBuilder};
///
/// let mut builder = ProblemBuilder::new();
/// let weights = builder.push_named("weights", Buffer::new(0..9, 4096))?;
/// builder.push(Buffer::new(2..3, 512))?;
/// assert!(builder.push(Buffer::new(3..3, 512)).is_err());
/// let problem = builder.finish();
/// assert_eq!((problem.name(weights), problem.name(1)), (Some("weights"), None));
/// # Ok::<(), orlop_plan::ProblemError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProblemBuilder {
    pub(crate) problem: Problem,
    /// The sum of the aligned sizes of all buffers.
    pub(crate) total: u64,
    /// That of the fixed ones.
    pub(crate) fixed_total: u64,
    /// Whether parts may refer to buffers that are parts.
    pub(crate) has_nested_parts: bool,
}

impl ProblemBuilder {
    /// Creates a builder without buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer and returns its index.
    ///
    /// # Errors
    ///
    /// [`ProblemError`]; the buffer is then not added.
    pub fn push(&mut self, buffer: Buffer) -> Result<usize, ProblemError> {
        let index = self.problem.buffers.len();
        if index == MAX_BUFFERS {
            return Err(ProblemError::TooMany { limit: MAX_BUFFERS });
        }
        let Buffer { start, end, size, .. } = buffer;
        if start >= end {
            return Err(ProblemError::EmptyLifetime { index, start, end });
        }
        let total = buffer.max_aligned_size().and_then(|size| self.total.checked_add(size));
        let total = total.filter(|&total| self.problem.constraints.space(total).is_some());
        self.total = total.ok_or(ProblemError::TotalOverflow { index, size })?;
        self.problem.buffers.push(buffer);
        Ok(index)
    }

    /// Adds a buffer with a name and returns its index. Names need not be unique; an empty one is none.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn push_named(&mut self, name: &str, buffer: Buffer) -> Result<usize, ProblemError> {
        let index = self.push(buffer)?;
        self.problem.names.set(index, name);
        Ok(index)
    }

    /// Returns the problem.
    #[must_use]
    pub fn finish(mut self) -> Problem {
        self.flatten_parts();
        self.problem
    }

    pub(crate) fn forget_names(&mut self) {
        self.problem.names = BufferNames::default();
    }
}

/// The names, concatenated: a million small strings would cost more than everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct BufferNames {
    text: String,
    /// The end of each name. Buffers beyond the list have no name.
    ends: Vec<usize>,
}

impl BufferNames {
    fn set(&mut self, index: usize, name: &str) {
        if name.is_empty() {
            return;
        }
        self.ends.resize(index, self.text.len());
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(start..end).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::Alignment;

    #[test]
    fn invalid_buffers_are_refused_with_their_index() {
        let refused = |buffers: &[Buffer]| Problem::new(buffers.iter().copied()).unwrap_err();
        let good = Buffer::unaligned(0..1, 8);
        let empty = ProblemError::EmptyLifetime { index: 1, start: 4, end: 4 };
        assert_eq!(refused(&[good, Buffer::unaligned(4..4, 8)]), empty);
        #[expect(clippy::reversed_empty_ranges, reason = "an invalid lifetime")]
        let backwards = Buffer::unaligned(5..4, 8);
        assert_eq!(refused(&[backwards]), ProblemError::EmptyLifetime { index: 0, start: 5, end: 4 });
        let rest = Buffer::unaligned(7..8, u64::MAX - 8);
        assert!(Problem::new([good, rest]).is_ok());
        let one_more = ProblemError::TotalOverflow { index: 2, size: 1 };
        assert_eq!(refused(&[good, rest, Buffer::unaligned(0..1, 1)]), one_more);
        let gap = rest.aligned(Alignment::new(2).unwrap());
        assert_eq!(refused(&[good, gap]), ProblemError::TotalOverflow { index: 1, size: u64::MAX - 8 });
    }

    #[test]
    fn a_refused_buffer_changes_nothing() {
        let mut builder = ProblemBuilder::new();
        builder.push(Buffer::unaligned(0..1, u64::MAX)).unwrap();
        assert!(builder.push_named("x", Buffer::unaligned(0..1, 1)).is_err());
        assert_eq!(builder.push_named("y", Buffer::unaligned(0..1, 0)), Ok(1));
        let problem = builder.finish();
        assert_eq!((problem.len(), problem.name(0), problem.name(1)), (2, None, Some("y")));
    }

    #[test]
    fn some_have_names() {
        let mut builder = ProblemBuilder::new();
        let one = Buffer::unaligned(0..1, 1);
        for name in [None, Some("a"), Some(""), None, Some("bc"), None] {
            match name {
                Some(name) => builder.push_named(name, one).unwrap(),
                None => builder.push(one).unwrap(),
            };
        }
        let problem = builder.finish();
        let names: Vec<_> = (0..7).map(|index| problem.name(index)).collect();
        assert_eq!(names, [None, Some("a"), None, None, Some("bc"), None, None]);
        assert_eq!(problem.buffer_ref(4).to_string(), "buffer 4 (\"bc\")");
    }
}
