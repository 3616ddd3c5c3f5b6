//! One step of a plain trace, in 16 bytes.

use orlop_core::StreamId;

/// A step of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStep {
    /// Allocate, and keep the block in this slot, which is empty.
    Allocate {
        /// Below [`Trace::slots`](super::Trace::slots).
        slot: usize,
        /// Bytes.
        bytes: usize,
        /// For which stream.
        stream: StreamId,
    },
    /// Free the block in this slot.
    Free {
        /// Below [`Trace::slots`](super::Trace::slots).
        slot: usize,
    },
}

/// Marks a free; slots are below, because a trace has fewer operations than that.
const FREE: u32 = 1 << 31;

const _: () = assert!(super::Trace::MAX_OPERATIONS < FREE as usize && size_of::<PackedStep>() == 16);

/// A [`ReplayStep`] in a third less memory: a replay reads it all, and should measure the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedStep {
    bytes: usize,
    slot: u32,
    /// Index of the stream.
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
