//! The typed fields of errors: formats, fields of events, and faults of blocks.

use std::fmt;

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
    /// A table in a Parquet file.
    Parquet,
    /// A table in an SQLite database.
    Sqlite,
    /// [`perfetto`](super::perfetto).
    Perfetto,
    /// [`pprof`](super::pprof).
    Pprof,
    /// [`snapshot`](super::snapshot).
    Snapshot,
    /// A zip archive of recordings.
    Zip,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "orlop's binary history",
            Self::Csv => "orlop's CSV history",
            Self::Rmm => "a log of RMM",
            Self::Chrome => "a Chrome trace",
            Self::Parquet => "a Parquet table",
            Self::Sqlite => "an SQLite database",
            Self::Perfetto => "a Perfetto trace",
            Self::Pprof => "a profile of pprof",
            Self::Snapshot => "a memory snapshot",
            Self::Zip => "a zip archive",
        })
    }
}

/// A field of an event in [`csv`](super::csv), [`rmm`](super::rmm) or [`text`](super::text).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventField {
    /// The device.
    Device,
    /// The time.
    Time,
    /// The action.
    Action,
    /// The address of the block.
    Address,
    /// The size of the block.
    Bytes,
    /// The stream.
    Stream,
    /// The thread.
    Thread,
    /// The memory kind.
    Kind,
    /// The tag or annotation.
    Text,
    /// The call site.
    Frames,
    /// What is known about a refused request.
    Refusal,
    /// The operation of a line in a plain trace.
    Operation,
    /// The id of a block in a plain trace.
    Id,
    /// The end of a line, where more was found.
    End,
}

impl EventField {
    /// Returns a description of the valid values.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Device => "a whole number below 2^32",
            Self::Time => "nanoseconds, seconds, or h:m:s with microseconds, as the format has it",
            Self::Action => "an action of the format",
            Self::Address => "a hexadecimal number",
            Self::Bytes | Self::Stream | Self::Id => "a whole number below 2^64",
            Self::Thread => "the number of a thread",
            Self::Kind => "a memory kind",
            Self::Text => "a text",
            Self::Frames => "frames `function|file|line`, separated by `;`",
            Self::Refusal => "`cause|refuser|outcome`",
            Self::Operation => "`a` (allocate) or `f` (free)",
            Self::End => "the end of the line",
        }
    }
}

impl fmt::Display for EventField {
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
            Self::Refusal => "the refusal",
            Self::Operation => "the operation",
            Self::Id => "the id",
            Self::End => "the rest",
        })
    }
}

/// The damage of a block of a binary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFault {
    /// The checksum is wrong.
    Checksum,
    /// The length exceeds the limit.
    Length,
    /// The block ends inside a record.
    Record,
    /// A record of an unknown kind.
    Tag,
    /// A reference to a text, frame, stack, kind or warning that does not exist.
    Reference,
    /// A number that is too large.
    Number,
    /// A text that is not UTF-8.
    Text,
    /// An event or segment before any device, or a chunk before any segment.
    Order,
    /// A record of the start after an event.
    Late,
    /// The number of events at the end is wrong.
    Count,
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checksum => "its checksum is wrong",
            Self::Length => "its length exceeds the limit",
            Self::Record => "it ends inside a record",
            Self::Tag => "it has a record of an unknown kind",
            Self::Reference => "it refers to something that does not exist",
            Self::Number => "it has a number that is too large",
            Self::Text => "it has a text that is not UTF-8",
            Self::Order => "it has a record before the one it belongs to",
            Self::Late => "it has a record of the state at the start after an event",
            Self::Count => "the number of events is wrong",
        })
    }
}
