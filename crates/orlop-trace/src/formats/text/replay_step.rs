//! A step of a plain trace in 16 bytes.

use orlop_core::StreamId;

/// A step of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStep {
    /// Allocate a block and keep it in this empty slot.
    Allocate {
        /// Less than [`Trace::slots`](super::Trace::slots).
        slot: usize,
        /// The requested bytes.
        bytes: usize,
        /// The stream of the request.
        stream: StreamId,
    },
    /// Free the block in this slot.
    Free {
        /// Less than [`Trace::slots`](super::Trace::slots).
        slot: usize,
    },
}

/// Marks a free. Slots are smaller, because a trace has fewer operations than that.
const FREE: u32 = 1 << 31;

const _: () = assert!(super::Trace::MAX_OPERATIONS < FREE as usize && size_of::<PackedStep>() == 16);

/// A [`ReplayStep`] in two thirds of the memory: a replay reads all of them, and is meant to measure the
/// allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedStep {
    bytes: usize,
    slot: u32,
    /// The index of the stream.
    stream: u32,
}

impl PackedStep {
    pub(super) fn allocate(slot: u32, bytes: usize, stream: u32) -> Self {
        Self { bytes, slot, stream }
    }

    pub(super) fn free(slot: u32) -> Self {
        Self { bytes: 0, slot: slot | FREE, stream: 0 }
    }

    #[inline]
    pub(super) fn unpack(self, streams: &[StreamId]) -> ReplayStep {
        let slot = (self.slot & !FREE) as usize;
        if self.slot & FREE != 0 {
            return ReplayStep::Free { slot };
        }
        ReplayStep::Allocate { slot, bytes: self.bytes, stream: streams[self.stream as usize] }
    }
}
