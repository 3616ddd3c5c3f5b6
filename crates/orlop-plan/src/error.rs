//! The errors of problems and plans.

use std::fmt;

/// Why buffers are not a valid problem. Buffers are numbered from 0, in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A lifetime is empty.
    #[error("buffer {index}: the lifetime {start}..{end} is empty")]
    EmptyLifetime {
        /// The index of the buffer.
        index: usize,
        /// The start of its lifetime.
        start: u64,
        /// The end of its lifetime.
        end: u64,
    },
    /// The sum of all sizes, with their alignments, is beyond 64 bits.
    #[error("buffer {index}: with its {size} bytes all buffers together exceed 2^64 bytes")]
    TotalOverflow {
        /// The index of the buffer.
        index: usize,
        /// Its size in bytes.
        size: u64,
    },
    /// A gap is empty, not within the lifetime, or leaves nothing of it.
    #[error("buffer {index}: {start}..{end} cannot be a gap of its lifetime")]
    InvalidGap {
        /// The index of the buffer.
        index: usize,
        /// The start of the gap.
        start: u64,
        /// The end of the gap.
        end: u64,
    },
    /// Two buffers may not share bytes, and do so at fixed offsets or as parts of a buffer.
    #[error("buffers {index} and {other} may not share bytes, but do so at their fixed places")]
    Excluded {
        /// The index of the buffer.
        index: usize,
        /// The index of the other buffer.
        other: usize,
    },
    /// A block of limited size cannot have a buffer, or not at its fixed offset.
    #[error("buffer {index}: its {size} bytes, or its fixed place, are not in one block of {limit} bytes")]
    BlockLimit {
        /// The index of the buffer.
        index: usize,
        /// Its size in bytes.
        size: u64,
        /// The maximum size of a block in bytes.
        limit: u64,
    },
    /// All blocks together may exceed 64 bits.
    #[error("in blocks of {limit} bytes the buffers may exceed 2^64 bytes")]
    BlockOverflow {
        /// The maximum size of a block in bytes.
        limit: u64,
    },
    /// There is no such buffer.
    #[error("there is no buffer {index}")]
    NoBuffer {
        /// The index.
        index: usize,
    },
    /// An offset is not a multiple of the buffer's alignment.
    #[error("buffer {index}: the offset {offset} is not a multiple of {alignment}")]
    Misaligned {
        /// The index of the buffer.
        index: usize,
        /// The offset in bytes: of a part, from the start of the whole.
        offset: u64,
        /// The alignment in bytes.
        alignment: u64,
    },
    /// The place of a buffer, or of the whole that it would be in, is determined already.
    #[error("buffer {index}: its place is determined already, by a fixed offset or as a part of a buffer")]
    PlacedTwice {
        /// The index of the buffer.
        index: usize,
    },
    /// A part is not inside of the whole.
    #[error("buffer {index} at {offset} is not inside of buffer {whole}")]
    NotInside {
        /// The index of the part.
        index: usize,
        /// The index of the whole.
        whole: usize,
        /// The offset of the part from the start of the whole, in bytes.
        offset: u64,
    },
    /// Two buffers with fixed offsets share bytes while both are live.
    #[error("buffer {index}: at its fixed offset it shares bytes with buffer {other} while both are live")]
    FixedOverlap {
        /// The index of the buffer.
        index: usize,
        /// The index of the other buffer.
        other: usize,
    },
    /// A buffer with a fixed offset has bytes that are reserved.
    #[error("buffer {index}: its fixed offset is in the reserved range {start}..{end}")]
    Reserved {
        /// The index of the buffer.
        index: usize,
        /// The start of the range.
        start: u64,
        /// The end of the range.
        end: u64,
    },
    /// The buffers may not fit above a reserved range.
    #[error("above a reserved range that ends at {end} the buffers may exceed 2^64 bytes")]
    ReservedOverflow {
        /// The end of the range.
        end: u64,
    },
    /// There is no such stream.
    #[error("there is no stream {stream}")]
    NoStream {
        /// The number of the stream.
        stream: usize,
    },
    /// There is no such step.
    #[error("there is no step {step}")]
    NoStep {
        /// The number of the step.
        step: usize,
    },
    /// No step uses a buffer.
    #[error("buffer {index}: no step uses it")]
    NeverUsed {
        /// The index of the buffer.
        index: usize,
    },
    /// More pairs of buffers than planners can keep apart are not ordered.
    #[error("more than {limit} pairs of buffers are used by streams that do not wait for each other")]
    TooManyPairs {
        /// The maximum number of pairs.
        limit: usize,
    },
    /// There are more buffers than a problem may have.
    #[error("a problem has at most {limit} buffers")]
    TooMany {
        /// The maximum.
        limit: usize,
    },
}

/// A buffer in an error: its index, and its name if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferRef {
    /// Its index in the problem, from 0.
    pub index: usize,
    /// Its name in the problem.
    pub name: Option<Box<str>>,
}

impl fmt::Display for BufferRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "buffer {} ({name:?})", self.index),
            None => write!(f, "buffer {}", self.index),
        }
    }
}

/// Why offsets are not a valid plan for a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The number of offsets is not the number of buffers.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// The number of offsets.
        offsets: usize,
        /// The number of buffers.
        buffers: usize,
    },
    /// A buffer would end beyond 2^64.
    #[error("{buffer}: {size} bytes at {offset} end beyond 2^64")]
    Overflow {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// An offset is not a multiple of the buffer's alignment.
    #[error("{buffer}: the offset {offset} is not a multiple of {alignment}")]
    Misaligned {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// Its alignment in bytes.
        alignment: u64,
    },
    /// A buffer is not at its fixed offset.
    #[error("{buffer} is at {offset}, but its offset is fixed at {fixed}")]
    NotFixed {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// Its fixed offset in bytes.
        fixed: u64,
    },
    /// A buffer has bytes that are reserved.
    #[error("{buffer} at {offset} is in the reserved range {start}..{end}")]
    Reserved {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// The start of the range.
        start: u64,
        /// The end of the range.
        end: u64,
    },
    /// A part is not at its place in the whole.
    #[error("{part} is at {offset}, but as a part of {whole} at {expected}")]
    NotInPlace {
        /// The part.
        part: BufferRef,
        /// The whole.
        whole: BufferRef,
        /// The offset of the part in bytes.
        offset: u64,
        /// The offset that it has as a part of the whole.
        expected: u64,
    },
    /// Two buffers share bytes while both are live.
    #[error("{first} and {second} are both live at {time} and share the bytes {from}..{to}")]
    Overlap {
        /// The buffer that was live first.
        first: BufferRef,
        /// The other buffer.
        second: BufferRef,
        /// The first time at which both are live.
        time: u64,
        /// The offset of the first shared byte.
        from: u64,
        /// The offset after the last shared byte.
        to: u64,
    },
    /// Two buffers share bytes that may not, whenever they are live.
    #[error("{first} and {second} may not share bytes, but share {from}..{to}")]
    Excluded {
        /// The buffer with the smaller index.
        first: BufferRef,
        /// The other buffer.
        second: BufferRef,
        /// The offset of the first shared byte.
        from: u64,
        /// The offset after the last shared byte.
        to: u64,
    },
    /// A buffer is in two blocks.
    #[error("{buffer} at {offset} is not in one block of {limit} bytes")]
    Divided {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// The maximum size of a block in bytes.
        limit: u64,
    },
    /// An offset is beyond those of a format.
    #[error("{buffer}: the offset {offset} is above {limit}, the largest of the format")]
    TooHigh {
        /// The buffer.
        buffer: BufferRef,
        /// Its offset in bytes.
        offset: u64,
        /// The largest offset in bytes.
        limit: u64,
    },
    /// The height is not the end of the highest buffer.
    #[error("the height is {height}, but the highest buffer ends at {highest_end}")]
    Height {
        /// The height of the plan.
        height: u64,
        /// The end of the highest buffer.
        highest_end: u64,
    },
    /// The lower bound of a plan is above its height.
    #[error("the lower bound {lower_bound} is above the height {height}")]
    Bound {
        /// The lower bound of the plan.
        lower_bound: u64,
        /// The height of the plan.
        height: u64,
    },
}
