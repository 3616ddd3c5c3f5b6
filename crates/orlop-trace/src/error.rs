//! The error of this crate: typed, with the place in the file.

use crate::formats::FormatError;
use crate::formats::snapshot::SnapshotError;
use crate::input::is_bomb;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of this crate's operations.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// A part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The first: what happened.
    Kind,
    /// Which block.
    Id,
    /// How large.
    Bytes,
    /// For which stream.
    Stream,
    /// The line's end, where more was found.
    End,
}

impl Field {
    /// What may stand there.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Kind => "`a` (allocate) or `f` (free)",
            Self::Id | Self::Bytes | Self::Stream => "a whole number below 2^64",
            Self::End => "the end of the line",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "the kind",
            Self::Id => "the id",
            Self::Bytes => "the size",
            Self::Stream => "the stream",
            Self::End => "the rest",
        })
    }
}

/// Every failure of this crate. Lines and operations count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened: {error}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file can be opened, but it is no trace.
    #[error("{}: {error}", path.display())]
    InFile {
        /// Which.
        path: PathBuf,
        /// Why.
        error: Box<TraceError>,
    },
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// The file is of no format that is known.
    #[error("neither a memory snapshot (pickle or JSON) nor a trace of a known format")]
    Unknown,
    /// The file unpacks to more than any recording of its length.
    #[error("cannot be read: {error}")]
    Bomb {
        /// How much it may unpack to.
        error: io::Error,
    },
    /// The file is a memory snapshot that cannot be read, or a history cannot be one.
    #[error(transparent)]
    Snapshot(SnapshotError),
    /// Writing stopped.
    #[error("cannot be written: {error}")]
    Write {
        /// Why.
        error: io::Error,
    },
    /// A file of a history is none, or cannot be written.
    #[error(transparent)]
    Format(FormatError),
    /// Reading stopped: the disk, or compressed data that is damaged or cut off.
    #[error("line {line}: cannot be read: {error}")]
    Read {
        /// The line being read.
        line: u64,
        /// Why.
        error: io::Error,
    },
    /// A line is longer than any operation can be.
    #[error("line {line}: longer than {limit} bytes: this is no trace")]
    LineTooLong {
        /// Which.
        line: u64,
        /// The longest that is read.
        limit: usize,
    },
    /// A field is not there.
    #[error("line {line}: {field} is missing, expected {}", field.expected())]
    Missing {
        /// Where.
        line: u64,
        /// Which.
        field: Field,
    },
    /// A field holds something else.
    #[error("line {line}: {field} cannot be {found:?}, expected {}", field.expected())]
    Unexpected {
        /// Where.
        line: u64,
        /// Which.
        field: Field,
        /// Its text, or the beginning of it.
        found: Box<str>,
    },
    /// The id is allocated again while its block lives.
    #[error("line {line}: {id} is allocated again, and lives since line {since}")]
    AllocatedTwice {
        /// Where.
        line: u64,
        /// Which block.
        id: u64,
        /// Where it was allocated.
        since: u64,
    },
    /// The id was never allocated.
    #[error("line {line}: {id} is freed, but was never allocated")]
    FreedUnknown {
        /// Where.
        line: u64,
        /// Which block.
        id: u64,
    },
    /// The id was freed before and not allocated again.
    #[error("line {line}: {id} is freed again, and was freed on line {since}")]
    FreedTwice {
        /// Where.
        line: u64,
        /// Which block.
        id: u64,
        /// Where it was freed.
        since: u64,
    },
    /// Live bytes pass what an address can say.
    #[error("line {line}: with {bytes} bytes more the live bytes pass 2^64")]
    LiveOverflow {
        /// Where.
        line: u64,
        /// Bytes asked for.
        bytes: u64,
    },
    /// More operations, or more blocks at a time, than a trace may have.
    #[error("line {line}: a trace has at most {limit} operations")]
    TooLong {
        /// Where.
        line: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// What is to be written is what is read: the input would be lost.
    #[error("{}: this is the same file as the input {}, which would be lost: name another output", output.display(), input.display())]
    OutputIsInput {
        /// What was to be written.
        output: PathBuf,
        /// What is read.
        input: PathBuf,
    },
}

/// The same, or that the file unpacks to too much.
impl From<SnapshotError> for TraceError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Read(error) if is_bomb(&error) => Self::Bomb { error },
            error => Self::Snapshot(error),
        }
    }
}

/// The same, or that the file unpacks to too much.
impl From<FormatError> for TraceError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Read { error, .. } if is_bomb(&error) => Self::Bomb { error },
            error => Self::Format(error),
        }
    }
}

impl TraceError {
    /// That reading stopped at a line.
    pub(crate) fn read(line: u64, error: io::Error) -> Self {
        if is_bomb(&error) { Self::Bomb { error } } else { Self::Read { line, error } }
    }

    /// The same, with the file's name in front.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self::InFile { path: path.to_owned(), error: Box::new(self) }
    }
}
