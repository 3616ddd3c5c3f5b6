//! The records of a file, as a reader returns them.

use crate::history::{
    Annotation, EventDetail, HistoryEvent, HistoryWarning, RefusalDetail, Segment, SegmentBlock, TextId,
};
use orlop_core::torch::TorchReleases;

/// A record of a binary file.
#[derive(Debug)]
#[non_exhaustive]
pub enum BinaryRecord {
    /// An event of the current device.
    Event(HistoryEvent),
    /// The records that follow belong to this device.
    Device(u32),
    /// [`History::settings`](crate::history::History::settings).
    Settings(TextId),
    /// [`History::releases`](crate::history::History::releases).
    Releases(TorchReleases),
    /// A warning of the history that was written.
    Warning(HistoryWarning),
    /// A segment without its blocks, which follow as [`BinaryRecord::Chunk`].
    Segment {
        /// Whether it belongs to the end of the recording, and not to its start.
        at_end: bool,
        /// The segment.
        segment: Segment,
    },
    /// A block of the last segment.
    Chunk(SegmentBlock),
    /// [`DeviceHistory::memory`](crate::history::DeviceHistory::memory).
    Memory(u64),
    /// An annotation of the program.
    Annotation(Annotation),
    /// Facts that only some events have.
    Detail(EventDetail),
    /// A block that was live at the start, in no known segment.
    Unplaced(SegmentBlock),
    /// [`DeviceHistory::counted_reserved`](crate::history::DeviceHistory::counted_reserved).
    CountedReserved(u64),
    /// What is known about the refusal that is the last event of the device. [`RefusalDetail::event`] is 0.
    Refusal(RefusalDetail),
}
