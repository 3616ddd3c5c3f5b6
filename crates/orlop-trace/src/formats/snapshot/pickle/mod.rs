//! Pickles: plain data only.
//!
//! A pickle is a program for a small machine with a stack and a memo. Most of its opcodes make data; some
//! import a module and call what they find in it. Snapshots need the first sort alone, so this machine has no
//! others: it cannot be talked into running anything, and says at which offset a file tried
//! ([`SnapshotError::RunsCode`]).
//!
//! What a program makes is not a tree. Values are shared through the memo (all frames of a snapshot are), and
//! a hostile one shares them so that a few bytes stand for 2^64 records. Therefore values are nodes of a
//! [`PickleArena`](arena::PickleArena), named by number: nothing is copied when it is shared, nothing
//! recurses when it is made or dropped, and every byte of the file costs at most some twenty bytes of memory.
//! When the nodes become a history, stacks, frames and texts are converted once each, and the work on
//! everything else is counted: it may not pass what the file's length justifies.
//!
//! | part | what |
//! |---|---|
//! | `source` | bytes, a buffer at a time |
//! | `machine` | opcodes |
//! | `arena` | the values |
//! | `convert` | values into records |
//!
//! Source of the opcodes' meaning: `Lib/pickletools.py` of CPython.

mod arena;
mod convert;
mod source;
mod virtual_machine;

use self::convert::Dag;
use self::virtual_machine::PickleMachine;
use super::build::Build;
use super::error::SnapshotError;
use super::records::Whole;
use super::value::RecordValue as _;
use crate::history::History;
use std::io::Read;

/// Reads a snapshot.
pub(crate) fn read(reader: impl Read) -> Result<History, SnapshotError> {
    let (arena, root, bytes) = PickleMachine::new(reader).run()?;
    let mut build = Build::default();
    let mut dag = Dag::new(arena, bytes);
    dag.at(root).record::<Whole>(&mut build)?;
    drop(dag);
    Ok(build.finish())
}
