//! What can go wrong with a file of a history: typed, with the place where it went wrong.

use std::{fmt, io};

/// A format that this crate reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// [`binary`](super::binary).
    Binary,
    /// [`csv`](super::csv).
    Csv,
    /// [`rmm`](super::rmm).
    Rmm,
    /// [`chrome`](super::chrome).
    Chrome,
    /// [`perfetto`](super::perfetto).
    Perfetto,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "orlop's binary history",
            Self::Csv => "orlop's CSV history",
            Self::Rmm => "RMM's log",
            Self::Chrome => "Chrome's trace",
            Self::Perfetto => "Perfetto's trace",
        })
    }
}

/// A column of [`csv`](super::csv) or [`rmm`](super::rmm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventColumn {
    /// Which device.
    Device,
    /// When.
    Time,
    /// What happened.
    Action,
    /// Where the block begins.
    Address,
    /// How large it is.
    Bytes,
    /// Which stream.
    Stream,
    /// Which thread.
    Thread,
    /// What the memory is for.
    Kind,
    /// The tag or annotation.
    Text,
    /// The call site.
    Frames,
}

impl EventColumn {
    /// What may stand there.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Device => "a whole number below 2^32",
            Self::Time => "nanoseconds, seconds, or h:m:s with microseconds, as the format has it",
            Self::Action => "an action of the format",
            Self::Address | Self::Stream => "a number, mostly hexadecimal",
            Self::Bytes => "a whole number below 2^64",
            Self::Thread => "the number of a thread",
            Self::Kind => "a memory kind",
            Self::Text => "a text",
            Self::Frames => "frames, `function|file|line`, with `;` between",
        }
    }
}

impl fmt::Display for EventColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "the device",
            Self::Time => "the time",
            Self::Action => "the action",
            Self::Address => "the address",
            Self::Bytes => "the size",
            Self::Stream => "the stream",
            Self::Thread => "the thread",
            Self::Kind => "the kind",
            Self::Text => "the text",
            Self::Frames => "the call site",
        })
    }
}

/// What is wrong with a block of a binary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFault {
    /// Its bytes are not those that were written.
    Checksum,
    /// It says that it is longer than a block may be.
    Length,
    /// It ends in the midst of a record.
    Record,
    /// A record of a kind that there is not.
    Tag,
    /// A number that names nothing: a text, frame, stack, kind or warning.
    Reference,
    /// A number that does not fit.
    Number,
    /// A text that is not UTF-8.
    Text,
    /// An event or segment before any device, or a block before any segment.
    Order,
    /// Something of the start comes after an event.
    Late,
    /// The file says that it has another number of events.
    Count,
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checksum => "its bytes are not those that were written",
            Self::Length => "it says that it is longer than any block",
            Self::Record => "it ends in the midst of a record",
            Self::Tag => "it has a record of an unknown kind",
            Self::Reference => "it names something that is not there",
            Self::Number => "it has a number that is too large",
            Self::Text => "it has a text that is not UTF-8",
            Self::Order => "it has a record before what that belongs to",
            Self::Late => "it has something of the start after an event",
            Self::Count => "the number of events is not that which was written",
        })
    }
}

/// A file that is no history, or a place that cannot be written to. Bytes count from 0, lines from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Reading stopped: the disk, or compressed data that is damaged or cut off.
    #[error("{format}: cannot be read: {error}")]
    Read {
        /// What was read.
        format: Format,
        /// Why.
        error: io::Error,
    },
    /// Writing stopped.
    #[error("{format}: cannot be written: {error}")]
    Write {
        /// What was written.
        format: Format,
        /// Why.
        error: io::Error,
    },
    /// The file begins with something else.
    #[error("this is not {format}")]
    NotThis {
        /// What it is not.
        format: Format,
    },
    /// The file was written by a later version.
    #[error("the file is of version {found}; versions up to {known} can be read")]
    Version {
        /// The file's.
        found: u16,
        /// The latest that is known.
        known: u16,
    },
    /// A binary file ends before its end.
    #[error("the file is cut off: the block at byte {at} is not whole")]
    CutOff {
        /// Where the last whole block ends.
        at: u64,
    },
    /// A block of a binary file is damaged.
    #[error("the block at byte {at} is damaged: {fault}")]
    Damaged {
        /// Where it begins.
        at: u64,
        /// How.
        fault: BlockFault,
    },
    /// A line is longer than any event can be.
    #[error("line {line}: longer than {limit} bytes")]
    LineTooLong {
        /// Which.
        line: u64,
        /// The longest that is read.
        limit: usize,
    },
    /// A column is not there.
    #[error("line {line}: {column} is missing, expected {}", column.expected())]
    Missing {
        /// Where.
        line: u64,
        /// Which.
        column: EventColumn,
    },
    /// A column holds something else.
    #[error("line {line}: {column} cannot be {found:?}, expected {}", column.expected())]
    Unexpected {
        /// Where.
        line: u64,
        /// Which.
        column: EventColumn,
        /// Its text, or the beginning of it.
        found: Box<str>,
    },
    /// The JSON is none, or has something else where a trace has its events.
    #[error("{error}")]
    Json {
        /// What, and where.
        error: serde_json::Error,
    },
    /// A text that is to be written is longer than a block may be.
    #[error("a text of {bytes} bytes cannot be written; {limit} is the most")]
    TextTooLong {
        /// How long it is.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// More events than a history may have.
    #[error("a history has at most {limit} events")]
    TooManyEvents {
        /// How many are allowed.
        limit: u64,
    },
    /// More devices than any machine has.
    #[error("a history has at most {limit} devices")]
    TooManyDevices {
        /// How many are allowed.
        limit: usize,
    },
}

impl FormatError {
    pub(super) fn read(format: Format) -> impl Fn(io::Error) -> Self {
        move |error| Self::Read { format, error }
    }

    pub(super) fn write(format: Format) -> impl Fn(io::Error) -> Self {
        move |error| Self::Write { format, error }
    }
}
