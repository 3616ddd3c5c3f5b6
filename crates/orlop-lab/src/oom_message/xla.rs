//! Messages of XLA: a request that failed, with the sizes of the compiled program where XLA adds them, and a
//! program that its compiler refused for a TPU.

use super::scan::{after, short_size_after, size_after, start_of, until_next};
use super::{Framework, OutOfMemoryMessage};
use serde::Serialize;

/// How messages about a request begin; a number of bytes follows.
const STARTS: [&str; 3] = [
    "Out of memory while trying to allocate ",
    "Out of memory allocating ",
    "Failed to allocate request for ",
];

/// What comes before them, in the spelling of all versions.
const STATUS: [&str; 2] = ["RESOURCE_EXHAUSTED: ", "Resource exhausted: "];

/// The statistics are within this many bytes after a message.
const STATISTICS: usize = 2000;

/// What a compiled program needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct XlaProgram {
    /// All of it.
    pub total: u64,
    /// Arguments.
    pub parameters: Option<u64>,
    /// Results, and what may be part of them.
    pub results: Option<u64>,
    /// Temporaries.
    pub temporaries: Option<u64>,
    /// What is lost between temporaries.
    pub fragmentation: Option<u64>,
}

/// Returns the messages with their positions in the log.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let mut found = Vec::new();
    for status in STATUS {
        for (at, _) in log.match_indices(status) {
            let text = until_next(start_of(log.get(at..).unwrap_or_default(), STATISTICS), STATUS);
            let rest = text.get(status.len()..).unwrap_or_default();
            found.extend(request(rest).or_else(|| refused_program(rest)).map(|message| (at, message)));
        }
    }
    found
}

fn request(text: &str) -> Option<OutOfMemoryMessage> {
    let start = STARTS.into_iter().find(|start| text.starts_with(start))?;
    let mut message = OutOfMemoryMessage::new(Framework::Xla);
    message.requested = size_after(text, start);
    message.program = size_after(text, "total allocation:").map(|total| XlaProgram {
        total,
        parameters: size_after(text, "parameter allocation:"),
        results: size_after(text, "maybe_live_out allocation:"),
        temporaries: size_after(text, "preallocated temp allocation:"),
        fragmentation: size_after(text, "total fragmentation:"),
    });
    Some(message)
}

/// Reads `Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.` and what a TPU says at run time:
/// `Attempting to allocate 1.50G. That was not possible. There are 1.23G free.`
fn refused_program(text: &str) -> Option<OutOfMemoryMessage> {
    let mut message = OutOfMemoryMessage::new(Framework::Xla);
    if let Some(space) = after(text, "Ran out of memory in memory space ") {
        let name: String = space.chars().take_while(char::is_ascii_alphanumeric).collect();
        message.device = Some(name);
        message.total = short_size_after(after(space, "Used ")?, " of ");
        message.program = Some(XlaProgram {
            total: short_size_after(space, "Used ")?,
            parameters: short_size_after(space, "arguments "),
            results: None,
            temporaries: short_size_after(space, "HLO temp "),
            fragmentation: short_size_after(space, "% fragmentation ("),
        });
        return Some(message);
    }
    message.requested = short_size_after(text, "Attempting to allocate ");
    message.free = short_size_after(text, "There are ");
    message.requested.is_some().then_some(message)
}
