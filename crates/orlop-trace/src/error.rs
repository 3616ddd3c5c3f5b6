//! The error of this crate: typed, with the position in the file.

use crate::formats::pprof::PprofFault;
use crate::formats::{BlockFault, EventField, Format, OtherFile};
use crate::input::is_bomb;
use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's operations.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// The maximum number of characters of an invalid field in an error.
const MAX_SHOWN: usize = 32;

/// The errors of this crate. Lines and operations are numbered from 1, bytes from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file can be opened, but its contents are invalid.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: Box<TraceError>,
    },
    /// An output file is also an input, which would be lost.
    #[error(
        "{}: this is the same file as the input {}, which would be lost: name another output",
        output.display(),
        input.display()
    )]
    OutputIsInput {
        /// The output file.
        output: PathBuf,
        /// The input file.
        input: PathBuf,
    },
    /// A recorder was drained by the writer that it is draining to.
    #[error("the recorder is being drained by this thread: its writer cannot drain it")]
    Draining,
    /// Reading failed: an input error, or compressed data that is damaged or cut off.
    #[error("{format}: cannot be read: {error}")]
    Read {
        /// The format.
        format: Format,
        /// The cause.
        error: io::Error,
    },
    /// Reading a line failed: an input error, or compressed data that is damaged or cut off.
    #[error("line {line}: cannot be read: {error}")]
    ReadLine {
        /// The line.
        line: u64,
        /// The cause.
        error: io::Error,
    },
    /// Writing failed.
    #[error("{format}: cannot be written: {error}")]
    Write {
        /// The format.
        format: Format,
        /// The cause.
        error: io::Error,
    },
    /// The file decompresses to more than any recording of its length.
    #[error("cannot be read: {error}")]
    Bomb {
        /// The cause, with the limit.
        error: io::Error,
    },
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The format of the file is unknown.
    #[error("neither a memory snapshot (pickle or JSON) nor a trace of a known format")]
    UnknownFormat,
    /// The file is of a known kind, and no recording.
    #[error("this is {file}")]
    NotARecording {
        /// The kind, with what to do.
        file: OtherFile,
    },
    /// A folder or an archive has no recordings.
    #[error(
        "no recording is in it, in files: {files}{}",
        first.as_ref().map_or_else(String::new, |first| format!("; {first}"))
    )]
    NoRecordings {
        /// The number of files.
        files: usize,
        /// The error of reading the first of them.
        first: Option<Box<TraceError>>,
    },
    /// A folder or an archive has several recordings where one is expected.
    #[error("{count} recordings are in it: name one of them, like {}", first.display())]
    SeveralRecordings {
        /// The first recording.
        first: PathBuf,
        /// The number of recordings.
        count: usize,
    },
    /// An archive from a pipe is too long to be kept in memory.
    #[error("an archive that is not a file has at most {limit} bytes: save it to a file")]
    ArchiveTooLong {
        /// The maximum length in bytes.
        limit: u64,
    },
    /// An archive has too many members.
    #[error("an archive of recordings has at most {limit} members")]
    TooManyMembers {
        /// The maximum number.
        limit: usize,
    },
    /// A member of an archive is compressed by an unsupported method.
    #[error("method {method} of compression in zip archives is not supported: unzip it, and read the folder")]
    ArchiveMethod {
        /// The number of the method.
        method: u16,
    },
    /// A member of an archive is encrypted.
    #[error("it is encrypted: unzip it, and read the folder")]
    ArchiveEncrypted,
    /// A trace of a profiler that did not record memory.
    #[error("the trace has no memory events: record it with torch.profiler.profile(profile_memory=True)")]
    NoMemoryEvents,
    /// The file is not of the expected format.
    #[error("this is not {format}")]
    WrongFormat {
        /// The expected format.
        format: Format,
    },
    /// The file was written by a later version.
    #[error("the file is of version {found}; versions up to {known} can be read")]
    Version {
        /// The file's version.
        found: u16,
        /// The latest version that can be read.
        known: u16,
    },
    /// The JSON is malformed, or a value has the wrong type.
    #[error("{error}")]
    Json {
        /// The cause, with the position.
        error: serde_json::Error,
    },
    /// A history or trace has too many events.
    #[error("a recording has at most {limit} events")]
    TooManyEvents {
        /// The maximum number.
        limit: u64,
    },
    /// A history has too many devices.
    #[error("a history has at most {limit} devices")]
    TooManyDevices {
        /// The maximum number.
        limit: usize,
    },

    /// A line is longer than any event.
    #[error("line {line}: longer than {limit} bytes")]
    LineTooLong {
        /// The line.
        line: u64,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// A field is missing.
    #[error("line {line}: {field} is missing, expected {}", field.expected())]
    Missing {
        /// The line.
        line: u64,
        /// The field.
        field: EventField,
    },
    /// A field is invalid.
    #[error("line {line}: {field} cannot be {found:?}, expected {}", field.expected())]
    Unexpected {
        /// The line.
        line: u64,
        /// The field.
        field: EventField,
        /// The beginning of its text.
        found: Box<str>,
    },
    /// An id is allocated while its block is live.
    #[error("line {line}: {id} is allocated again, and has been live since line {since}")]
    AllocatedTwice {
        /// The line.
        line: u64,
        /// The block.
        id: u64,
        /// The line of its first allocation.
        since: u64,
    },
    /// An id is freed that was never allocated.
    #[error("line {line}: {id} is freed, but was never allocated")]
    FreedUnknown {
        /// The line.
        line: u64,
        /// The block.
        id: u64,
    },
    /// An id is freed twice.
    #[error("line {line}: {id} is freed again, and was freed on line {since}")]
    FreedTwice {
        /// The line.
        line: u64,
        /// The block.
        id: u64,
        /// The line of its first free.
        since: u64,
    },
    /// The sum of live bytes exceeds 2^64.
    #[error("line {line}: with {bytes} more bytes the live bytes exceed 2^64")]
    LiveOverflow {
        /// The line.
        line: u64,
        /// The requested bytes.
        bytes: u64,
    },

    /// A binary file or a pickle ends too early.
    #[error("the file is cut off: what follows byte {at} is incomplete")]
    CutOff {
        /// The end of the last complete part.
        at: u64,
    },
    /// A block of a binary file is damaged.
    #[error("the block at byte {at} is damaged: {fault}")]
    Damaged {
        /// The first byte of the block.
        at: u64,
        /// The kind of damage.
        fault: BlockFault,
    },
    /// A text is too long for a binary file.
    #[error("a text of {bytes} bytes cannot be written; the limit is {limit}")]
    TextTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The maximum length.
        limit: usize,
    },

    /// A pickle would run code. Snapshots contain only data.
    #[error("offset {offset}: {opcode} would run code: snapshots are plain data, this file is not")]
    RunsCode {
        /// The opcode.
        opcode: &'static str,
        /// Its offset.
        offset: u64,
    },
    /// A pickle has an opcode that does not occur in snapshots.
    #[error("offset {offset}: opcode {opcode:#04x} does not occur in snapshots")]
    Opcode {
        /// The opcode.
        opcode: u8,
        /// Its offset.
        offset: u64,
    },
    /// A pickle is of an unknown version of the protocol.
    #[error("pickle protocol {version} is unknown")]
    Protocol {
        /// The version.
        version: u8,
    },
    /// The operands of an opcode are missing, or of another type.
    #[error("offset {offset}: the operands of opcode {opcode:#04x} are missing or of the wrong type")]
    Operands {
        /// The opcode.
        opcode: u8,
        /// Its offset.
        offset: u64,
    },
    /// A memo was never stored, or has an index that no pickle of this length needs.
    #[error("offset {offset}: memo {index} is invalid")]
    Memo {
        /// The index.
        index: u64,
        /// The offset of the opcode.
        offset: u64,
    },
    /// A number or a text in text form is malformed.
    #[error("offset {offset}: the value is malformed")]
    Literal {
        /// The offset of the opcode.
        offset: u64,
    },
    /// A pickle has too many values.
    #[error("offset {offset}: more than {limit} values")]
    TooManyValues {
        /// The offset of the opcode.
        offset: u64,
        /// The maximum number.
        limit: u64,
    },
    /// A pickle shares values so often that reading its records would take excessive time and memory.
    #[error("values are shared excessively: {records} steps for a file of {bytes} bytes")]
    ExcessiveSharing {
        /// The number of records and fields that were read.
        records: u64,
        /// The length of the file in bytes.
        bytes: u64,
    },
    /// A value of a snapshot is not the record or list that belongs there.
    #[error("expected {expected}, found another type")]
    WrongType {
        /// The expected type.
        expected: &'static str,
    },
    /// A record of a snapshot lacks a required field, or the field is invalid.
    #[error("{record} has no {field}, or an invalid one")]
    MissingField {
        /// The record.
        record: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A time of a snapshot exceeds 2^64 nanoseconds.
    #[error("a time exceeds 2^64 nanoseconds")]
    TimeOverflow,
    /// The number of a device is too large for a snapshot.
    #[error("device {device}: devices are numbered below {limit}")]
    DeviceNumber {
        /// The number.
        device: u64,
        /// The smallest invalid number.
        limit: u32,
    },
    /// A profile of pprof is malformed, or not one of memory.
    #[error("not a profile of memory: {fault}")]
    Pprof {
        /// The cause.
        #[from]
        fault: PprofFault,
    },
    /// The pickle or JSON is well-formed, but not a snapshot.
    #[error("neither segments nor device_traces: this is not a memory snapshot")]
    NotASnapshot,
}

impl TraceError {
    /// Returns a conversion of errors of reading this format.
    pub(crate) fn read(format: Format) -> impl Fn(io::Error) -> Self {
        move |error| if is_bomb(&error) { Self::Bomb { error } } else { Self::Read { format, error } }
    }

    /// Creates the error of reading a line.
    pub(crate) fn read_line(line: u64, error: io::Error) -> Self {
        if is_bomb(&error) { Self::Bomb { error } } else { Self::ReadLine { line, error } }
    }

    /// Returns a conversion of errors of writing this format.
    pub(crate) fn write(format: Format) -> impl Fn(io::Error) -> Self {
        move |error| Self::Write { format, error }
    }

    /// Creates the error of an invalid field.
    #[cold]
    pub(crate) fn unexpected(line: u64, field: EventField, text: &[u8]) -> Self {
        let found: String = String::from_utf8_lossy(text).chars().take(MAX_SHOWN).collect();
        Self::Unexpected { line, field, found: found.into() }
    }

    /// Adds the path of the file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self::InFile { path: path.to_owned(), error: Box::new(self) }
    }
}
