//! What can be wrong with a snapshot.

use super::build::RecordFault;
use std::io;

/// Why a file is no memory snapshot that can be read. Offsets are bytes of the file, unpacked, from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Reading stopped: the disk, or compressed data that is damaged, cut off, or of no end.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The pickle ends in the middle.
    #[error("offset {offset}: the pickle ends before it is complete")]
    Truncated {
        /// Where it ends.
        offset: u64,
    },
    /// The pickle asks its reader to run something. Snapshots are plain data; this is something else.
    #[error("offset {offset}: {opcode} would run code: snapshots are plain data, this file is not")]
    RunsCode {
        /// What asks.
        opcode: &'static str,
        /// Where.
        offset: u64,
    },
    /// An opcode that no snapshot has, or none at all.
    #[error("offset {offset}: opcode {opcode:#04x} is not one of those that snapshots are made of")]
    Opcode {
        /// Which.
        opcode: u8,
        /// Where.
        offset: u64,
    },
    /// A version of the format that did not exist when this was written.
    #[error("pickle protocol {version} is not known")]
    Protocol {
        /// Which.
        version: u8,
    },
    /// The opcode needs values that are not there, or of another type.
    #[error("offset {offset}: opcode {opcode:#04x} does not find what it works on")]
    Operands {
        /// Which.
        opcode: u8,
        /// Where.
        offset: u64,
    },
    /// A memo that was never stored, or has a number that no pickle of this length needs.
    #[error("offset {offset}: memo {index} cannot be")]
    Memo {
        /// Which.
        index: u64,
        /// Where.
        offset: u64,
    },
    /// A number or a text in text form cannot be read.
    #[error("offset {offset}: the value cannot be read")]
    Literal {
        /// Where.
        offset: u64,
    },
    /// More values than a snapshot may have.
    #[error("offset {offset}: more than {limit} values")]
    TooMany {
        /// Where.
        offset: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// So few values stand for so many records that reading them would take time and memory out of
    /// proportion.
    #[error("the same values are used again and again: {records} steps for a file of {bytes} bytes")]
    Swollen {
        /// Records and fields that were read.
        records: u64,
        /// Bytes of the file.
        bytes: u64,
    },
    /// Something else stands where a record or a list belongs.
    #[error("{expected} was expected, and something else is there")]
    Unexpected {
        /// What belongs there.
        expected: &'static str,
    },
    /// A record lacks a field that cannot be done without.
    #[error("{record} has no {field}, or one that is no whole number from 0 or no known word")]
    Missing {
        /// Which record.
        record: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A time cannot be said in nanoseconds.
    #[error("a time passes 2^64 nanoseconds")]
    Time,
    /// A device of a number that no machine has.
    #[error("device {device}: devices are numbered below {limit}")]
    Device {
        /// Which.
        device: u64,
        /// The first number that is not allowed.
        limit: u32,
    },
    /// It is well-formed, and about something else.
    #[error("neither segments nor device_traces: this is no memory snapshot")]
    NoSnapshot,
    /// The JSON is malformed, or has something else where a record belongs.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
}

impl From<RecordFault> for SnapshotError {
    fn from(fault: RecordFault) -> Self {
        match fault {
            RecordFault::Missing { record, field } => Self::Missing { record, field },
            RecordFault::Time => Self::Time,
            RecordFault::Device { device } => Self::Device { device, limit: super::build::MAX_DEVICES },
            RecordFault::Events => Self::TooMany { offset: 0, limit: u32::MAX.into() },
            RecordFault::NoSnapshot => Self::NoSnapshot,
        }
    }
}
