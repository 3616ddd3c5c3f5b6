//! [`PlannedError`]: the errors of planned memory, by the numbers of tensors and parts.

use crate::Error;
use orlop_core::{Alignment, Device};
use orlop_plan::{PlanError, ProblemError};
use std::ops::Range;

/// Errors of [planned memory](super). Tensors and parts are named by their numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlannedError {
    /// The clock is not inside the lifetime of the tensor.
    #[error("tensor {tensor} is live in the steps {lifetime:?}, and this is step {now}")]
    NotLive {
        /// The tensor.
        tensor: usize,
        /// Its lifetime; the end is excluded.
        lifetime: Range<u64>,
        /// The time of the clock.
        now: u64,
    },
    /// There is no such tensor.
    #[error("there is no tensor {tensor}: there are {tensors}")]
    Unknown {
        /// The number given.
        tensor: usize,
        /// The number of tensors.
        tensors: usize,
    },
    /// The time of a tensor is over, and it is still in use.
    #[error("tensor {tensor} is in use after its last step")]
    InUse {
        /// The tensor.
        tensor: usize,
        /// How it is used.
        source: Error,
    },
    /// Bytes were changed that nothing was lent to write: a write through an old address, or beyond the end
    /// of a buffer.
    #[error("{}", stray(*byte, *step, *written, *is_live, *other))]
    StrayWrite {
        /// The first of the bytes, from the start of the block.
        byte: usize,
        /// The step in which it was changed.
        step: u64,
        /// The tensor whose byte it is, or was last.
        written: Option<usize>,
        /// Whether that tensor is live. If not, its lifetime is over.
        is_live: bool,
        /// The tensor that probably wrote it, if `written` is live; otherwise the one that has the byte next.
        other: Option<usize>,
    },
    /// The clock cannot move back; it can start again.
    #[error("step {step} is before the present one, {now}: start again for the next run")]
    Backwards {
        /// The step given.
        step: u64,
        /// The time of the clock.
        now: u64,
    },
    /// A part is not inside the block.
    #[error("part {part}, bytes {range:?}, is not inside the block of {bytes} bytes")]
    OutsideBlock {
        /// The part.
        part: usize,
        /// Its bytes.
        range: Range<usize>,
        /// The bytes of the block.
        bytes: usize,
    },
    /// A tensor is not inside its part.
    #[error("tensor {tensor} is not inside its part")]
    OutsidePart {
        /// The tensor.
        tensor: usize,
        /// The bytes it needs.
        source: orlop_core::Error,
    },
    /// The address of a tensor is not aligned for its dtype.
    #[error("tensor {tensor} at offset {offset} is not aligned to {align}, or the block is not")]
    Misaligned {
        /// The tensor.
        tensor: usize,
        /// The offset of its part.
        offset: usize,
        /// The alignment of its dtype.
        align: Alignment,
    },
    /// A tensor is never live.
    #[error("the lifetime of tensor {tensor}, {lifetime:?}, is empty")]
    EmptyLifetime {
        /// The tensor.
        tensor: usize,
        /// Its lifetime.
        lifetime: Range<u64>,
    },
    /// Parts that are live at once share bytes.
    #[error("invalid plan")]
    Plan(#[from] PlanError),
    /// The parts are too many or too large.
    #[error("invalid parts")]
    Parts(#[source] ProblemError),
}

impl PlannedError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::InUse { source, .. } if source.is_out_of_memory())
    }
}

/// The reason why stray writes cannot be searched for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unsanitizable {
    /// The host cannot read the memory.
    #[error("no search for stray writes: the host cannot access the memory of {device}")]
    NotHostAccessible {
        /// The device of the memory.
        device: Device,
    },
    /// Streams use the memory, and the host does not wait for them.
    #[error("no search for stray writes: streams of {device} use the memory, and the host does not wait")]
    Streams {
        /// The device of the memory.
        device: Device,
    },
    /// The host has no memory for the copy.
    #[error("no search for stray writes: there is no host memory for a copy of the arena")]
    NoMemory(#[source] Box<Error>),
}

fn stray(byte: usize, step: u64, written: Option<usize>, is_live: bool, other: Option<usize>) -> String {
    let name = |tensor: Option<usize>| tensor.map(|tensor| format!("tensor {tensor}"));
    StrayWrite { byte, step, written: name(written), is_live, other: name(other) }.to_string()
}

/// The text about a stray write, with the names of the buffers.
#[derive(Debug)]
pub struct StrayWrite {
    /// See [`PlannedError::StrayWrite`].
    pub byte: usize,
    /// See [`PlannedError::StrayWrite`].
    pub step: u64,
    /// The name of the buffer whose byte was written.
    pub written: Option<String>,
    /// See [`PlannedError::StrayWrite`].
    pub is_live: bool,
    /// The name of the other buffer.
    pub other: Option<String>,
}

impl std::fmt::Display for StrayWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { byte, step, written, is_live, other } = self;
        match (written, other) {
            (Some(written), _) if *is_live => {
                write!(f, "{written} was changed in step {step}, not by a use of it")?;
            }
            (Some(written), _) => write!(f, "{written} was written after its last step, in step {step}")?,
            (None, _) => write!(f, "bytes that no buffer has had yet were written in step {step}")?,
        }
        write!(f, ", at byte {byte} of the arena")?;
        match other {
            Some(other) if *is_live => write!(f, "; {other} had this byte before, or ends below it"),
            Some(other) => write!(f, "; {other} has this byte next, or ends below it"),
            None => Ok(()),
        }
    }
}
