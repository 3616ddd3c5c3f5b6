//! The errors of problems' files.

use crate::ProblemError;
use std::{fmt, io};

/// A column of a problem's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemColumn {
    /// The name of the buffer.
    Id,
    /// The start of its lifetime.
    Start,
    /// The end of its lifetime, excluded or included.
    End,
    /// Its size in bytes.
    Size,
    /// The alignment of its offset in bytes.
    Alignment,
    /// Times within its lifetime at which it is not live.
    Gaps,
    /// The offset that the buffer must have.
    Offset,
    /// The offset that the buffer had in an earlier plan.
    Hint,
    /// How often the buffer is accessed.
    Accesses,
    /// The names of the spaces in which the buffer may be.
    Spaces,
    /// The buffer in which it is, and where.
    PartOf,
    /// The buffers with which it shares no bytes.
    Exclude,
}

impl ProblemColumn {
    /// Returns its names in a header.
    #[must_use]
    pub fn names(self) -> &'static str {
        match self {
            Self::Id => "`id`, `buffer` or `buffer_id`",
            Self::Start => "`lower`, `start` or `begin`",
            Self::End => "`upper` or `end`",
            Self::Size => "`size`",
            Self::Alignment => "`alignment`",
            Self::Gaps => "`gaps`",
            Self::Offset => "`offset`",
            Self::Hint => "`hint`",
            Self::Accesses => "`accesses`",
            Self::Spaces => "`spaces`",
            Self::PartOf => "`part_of`",
            Self::Exclude => "`exclude`",
        }
    }

    /// Returns a description of its valid values.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Id => "a name",
            Self::Start | Self::End | Self::Size | Self::Offset | Self::Hint | Self::Accesses => {
                "a whole number below 2^64"
            }
            Self::Spaces => "names",
            Self::PartOf => "the number of a buffer and a byte in it, like `3@1024`",
            Self::Exclude => "numbers of buffers",
            Self::Alignment => "a power of two",
            Self::Gaps => "times like `3-5 8-9` without windows of bytes",
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
            Self::Offset => "the offset",
            Self::Hint => "the hint",
            Self::Accesses => "the accesses",
            Self::Spaces => "the spaces",
            Self::PartOf => "the whole of the part",
            Self::Exclude => "the exclusions",
        })
    }
}

/// Why a file is not a valid problem. Lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The reader failed.
    #[error("line {line}: cannot be read: {error}")]
    Read {
        /// The number of the line.
        line: u64,
        /// The error of the reader.
        error: io::Error,
    },
    /// A line is longer than a buffer's can be.
    #[error("line {line}: longer than {limit} bytes: this is not a planning problem")]
    LineTooLong {
        /// The number of the line.
        line: u64,
        /// The maximum in bytes.
        limit: usize,
    },
    /// A column is missing in the header, or there is no header.
    #[error("line {line}: no column for {column}, expected {}", column.names())]
    MissingColumn {
        /// The number of the line of the header.
        line: u64,
        /// The column.
        column: ProblemColumn,
    },
    /// The header has a column twice.
    #[error("line {line}: a second column for {column}: {} are the same", column.names())]
    ColumnTwice {
        /// The number of the line.
        line: u64,
        /// The column.
        column: ProblemColumn,
    },
    /// The header has a column that is unknown. To ignore it could give a wrong plan.
    #[error("line {line}: the column {name:?} is unknown: remove it if the plan does not depend on it")]
    UnknownColumn {
        /// The number of the line.
        line: u64,
        /// The name, or its beginning.
        name: Box<str>,
    },
    /// A line has more or fewer fields than the header.
    #[error("line {line}: {found} fields, but the header has {expected}")]
    Fields {
        /// The number of the line.
        line: u64,
        /// The number of fields.
        found: usize,
        /// The number of columns.
        expected: usize,
    },
    /// A field has an invalid value.
    #[error("line {line}: {column} cannot be {found:?}, expected {}", column.expected())]
    Unexpected {
        /// The number of the line.
        line: u64,
        /// The column.
        column: ProblemColumn,
        /// The text, or its beginning.
        found: Box<str>,
    },
    /// A quote is not closed, or text follows a quoted field.
    #[error("line {line}: a quote is not closed, or text follows a quoted field")]
    Quote {
        /// The number of the line.
        line: u64,
    },
    /// The line is well-formed, but the buffer is not valid.
    #[error("line {line}: {error}")]
    Problem {
        /// The number of the line.
        line: u64,
        /// The fault of the buffer.
        error: ProblemError,
    },
}
