//! What can be wrong with a problem, its file, or a plan.

use std::{fmt, io};

/// Why buffers are no problem that can be planned. Buffers count from 0, in the order in which they were
/// given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// The buffer never lives.
    #[error("buffer {index}: the lifetime {start}..{end} is empty")]
    EmptyLifetime {
        /// Which.
        index: usize,
        /// Where it should begin.
        start: u64,
        /// Where it should end.
        end: u64,
    },
    /// Even one on top of the other, buffers must lie below 2^64.
    #[error("buffer {index}: with {size} bytes more all buffers together pass 2^64 bytes")]
    TotalOverflow {
        /// Which.
        index: usize,
        /// Its size.
        size: u64,
    },
    /// More buffers than a problem may have.
    #[error("a problem has at most {limit} buffers")]
    TooMany {
        /// How many are allowed.
        limit: usize,
    },
}

/// A column of a problem's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemColumn {
    /// What the buffer is called.
    Id,
    /// The first moment at which it lives.
    Start,
    /// The first moment after it, or the last at which it lives.
    End,
    /// In bytes.
    Size,
    /// What its offset is a multiple of.
    Alignment,
    /// When it does not live in between.
    Gaps,
}

impl ProblemColumn {
    /// Names that stand for it in a header.
    #[must_use]
    pub fn names(self) -> &'static str {
        match self {
            Self::Id => "`id`, `buffer` or `buffer_id`",
            Self::Start => "`lower`, `start` or `begin`",
            Self::End => "`upper` or `end`",
            Self::Size => "`size`",
            Self::Alignment => "`alignment`",
            Self::Gaps => "`gaps`",
        }
    }

    /// What may stand there.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Id => "a name",
            Self::Start | Self::End | Self::Size => "a whole number below 2^64",
            Self::Alignment => "a power of two",
            Self::Gaps => "nothing: lifetimes with gaps are not supported",
        }
    }
}

impl fmt::Display for ProblemColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "the id",
            Self::Start => "the start",
            Self::End => "the end",
            Self::Size => "the size",
            Self::Alignment => "the alignment",
            Self::Gaps => "the gaps",
        })
    }
}

/// Why a file is no problem. Lines count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// Reading stopped.
    #[error("line {line}: cannot be read: {error}")]
    Read {
        /// The line being read.
        line: u64,
        /// Why.
        error: io::Error,
    },
    /// A line is longer than any buffer's can be.
    #[error("line {line}: longer than {limit} bytes: this is no planning problem")]
    LineTooLong {
        /// Which.
        line: u64,
        /// The longest that is read.
        limit: usize,
    },
    /// The header lacks a column, or there is no header.
    #[error("line {line}: no column for {column}, expected {}", column.names())]
    MissingColumn {
        /// Where the header is, or should be.
        line: u64,
        /// Which.
        column: ProblemColumn,
    },
    /// The header has two columns for the same.
    #[error("line {line}: a second column for {column}: {} are the same", column.names())]
    ColumnTwice {
        /// Where.
        line: u64,
        /// Which.
        column: ProblemColumn,
    },
    /// A line has more or fewer fields than the header.
    #[error("line {line}: {found} fields, but the header has {expected}")]
    Fields {
        /// Where.
        line: u64,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A field holds something else.
    #[error("line {line}: {column} cannot be {found:?}, expected {}", column.expected())]
    Unexpected {
        /// Where.
        line: u64,
        /// Which.
        column: ProblemColumn,
        /// Its text, or the beginning of it.
        found: Box<str>,
    },
    /// A quoted field does not end, or goes on after its end.
    #[error("line {line}: a quote is not closed, or something stands behind a quoted field")]
    Quote {
        /// Where.
        line: u64,
    },
    /// The line is well-formed, and the buffer is not.
    #[error("line {line}: {error}")]
    Problem {
        /// Where.
        line: u64,
        /// What is wrong with it.
        error: ProblemError,
    },
}

/// A buffer in an error: its number, and its name if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferRef {
    /// Counted from 0.
    pub index: usize,
    /// What the problem calls it.
    pub name: Option<Box<str>>,
}

impl fmt::Display for BufferRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "buffer {} ({name:?})", self.index),
            None => write!(f, "buffer {}", self.index),
        }
    }
}

/// Why offsets are no plan for a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is not one offset for each buffer.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// How many offsets there are.
        offsets: usize,
        /// How many buffers.
        buffers: usize,
    },
    /// The buffer would end beyond 2^64.
    #[error("{buffer}: {size} bytes at {offset} pass 2^64")]
    Overflow {
        /// Which.
        buffer: BufferRef,
        /// Where it would begin.
        offset: u64,
        /// Its size.
        size: u64,
    },
    /// The offset is not a multiple of the buffer's alignment.
    #[error("{buffer}: the offset {offset} is no multiple of {alignment}")]
    Misaligned {
        /// Which.
        buffer: BufferRef,
        /// Where it would begin.
        offset: u64,
        /// What that should be a multiple of.
        alignment: u64,
    },
    /// Two buffers have bytes in common at a moment at which both live.
    #[error("{first} and {second} both live at {time} and have the bytes {from}..{to} in common")]
    Overlap {
        /// One of them: which lived already.
        first: BufferRef,
        /// The other.
        second: BufferRef,
        /// The first moment at which both live.
        time: u64,
        /// The first byte of both.
        from: u64,
        /// The first byte behind them.
        to: u64,
    },
    /// The height is not where the highest buffer ends.
    #[error("the height is {height}, but the highest buffer ends at {highest_end}")]
    Height {
        /// What the plan says.
        height: u64,
        /// What is true.
        highest_end: u64,
    },
    /// The bound that the verdict rests on is above the plan's own height.
    #[error("no plan is said to be below {lower_bound}, and this one has {height}")]
    Bound {
        /// What the plan says.
        lower_bound: u64,
        /// Its height.
        height: u64,
    },
}
