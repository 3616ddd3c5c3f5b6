//! Reading pickles of plain data.
//!
//! A pickle is a program for a virtual machine with a stack and a memo. Most opcodes create data; some import
//! a module and call its functions. Snapshots need only the first kind, and this machine has no others: a
//! file cannot execute code, and the error has the offset of the attempt ([`TraceError::RunsCode`]).
//!
//! The resulting values are not a tree. They are shared through the memo (as all frames of a snapshot are),
//! and a hostile file shares them so that a few bytes represent 2^64 records. Therefore values are nodes of a
//! [`PickleArena`](arena::PickleArena), referred to by id: sharing copies nothing, creating and dropping does
//! not recurse, and every byte of the file takes about twenty bytes of memory at most. When the nodes are
//! converted to a history, each stack, frame and text is converted once, and all other work is counted and
//! limited by the length of the file. Events are converted as soon as they are complete, and take
//! 76 bytes of memory each.
//!
//! | part | what |
//! |---|---|
//! | `source` | buffered bytes |
//! | `virtual_machine` | opcodes |
//! | `arena` | the values |
//! | `convert` | converting values to records |
//! | `stored_events` | the events that were converted |
//!
//! Reference for the opcodes: `Lib/pickletools.py` of CPython.

mod arena;
mod convert;
mod source;
mod stored_events;
mod virtual_machine;

use self::virtual_machine::PickleMachine;
use super::build::{ReadSegment, SnapshotBuilder};
use super::records::SnapshotFields;
use super::value::RecordValue as _;
use crate::Result;
use crate::history::History;
use std::io::Read;

/// Reads a snapshot.
pub(crate) fn read(reader: impl Read) -> Result<History> {
    let mut builder = SnapshotBuilder::default();
    let (mut converter, root) = PickleMachine::new(reader, &mut builder).run()?;
    if converter.is_list(root) {
        // As `torch.cuda.memory_snapshot()` returns it: the segments alone.
        converter.at(root).records::<ReadSegment>(&mut builder)?;
    } else {
        converter.at(root).record::<SnapshotFields>(&mut builder)?;
    }
    drop(converter);
    Ok(builder.finish())
}
