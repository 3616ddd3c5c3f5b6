//! What happened on the devices of a process: the one form that every reader makes and every tool of the lab takes.
//!
//! A history is of a part of a run, mostly. It has what was there when it began ([`DeviceHistory::start`]), what
//! happened ([`DeviceHistory::events`]) and what was there in the end ([`DeviceHistory::end`]). Call sites are kept once,
//! in [`Sites`]; events name them by number, and are 56 bytes.

mod sites;
mod workload;

use orlop_core::{MemoryKind, StreamId};
use std::fmt;

pub use self::sites::{Frame, SiteId, Sites, TextId};
pub use self::workload::{WorkBlock, WorkStep, Workload};

/// What happened, on all devices.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct History {
    /// By device; those on which nothing happened and nothing was are left out.
    pub devices: Vec<DeviceHistory>,
    /// Call sites and texts that the devices' records name.
    pub sites: Sites,
    /// The allocator's settings, as the source has them (PyTorch: `PYTORCH_CUDA_ALLOC_CONF`).
    pub settings: Option<String>,
    /// What does not fit together in the source. It is told, and the rest is used.
    pub warnings: Vec<Warning>,
}

/// What happened on one device.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DeviceHistory {
    /// Its number.
    pub device: u32,
    /// Bytes of memory it has, where the source says so.
    pub memory: Option<u64>,
    /// Segments and blocks when the first event happened, in order of address. Sources that have only events have none.
    pub start: Vec<Segment>,
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// Segments and blocks after the last event, in order of address. Empty where the source does not tell.
    pub end: Vec<Segment>,
}

/// A region that an allocator holds from the device (PyTorch: segment).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// The stream whose blocks it serves.
    pub stream: StreamId,
    /// Whether it serves small requests (PyTorch: up to 1 MiB).
    pub small: bool,
    /// Whether it grows in place, in mapped pages.
    pub expandable: bool,
    /// The private pool it belongs to; (0, 0) is the common one.
    pub pool: (u64, u64),
    /// Who needed it.
    pub site: SiteId,
    /// Its blocks in order of address, without gaps.
    pub blocks: Vec<SegmentBlock>,
}

/// A piece of a [`Segment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentBlock {
    /// Where it begins.
    pub address: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// How many bytes were asked for; of a free piece, the last time.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// Who asked for it.
    pub site: SiteId,
}

/// Whether a piece of a segment is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use.
    Live,
    /// Given back, but a stream may still use it.
    Pending,
    /// Free.
    Free,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds; only differences mean anything.
    pub time: u64,
    /// Of the block or region. For [`Action::OutOfMemory`] the bytes that the device had free.
    pub address: u64,
    /// How many bytes were asked for, given back, gained or lost.
    pub bytes: u64,
    /// The stream of the block, or the stream that uses it ([`Action::Use`]).
    pub stream: StreamId,
    /// Where in the program.
    pub site: SiteId,
    /// What it belongs to: a tag, an annotation's name. [`TextId::NONE`] where there is none.
    pub text: TextId,
    /// Which thread; 0 where the source does not tell.
    pub thread: u32,
    /// What happened.
    pub action: Action,
    /// What the memory is for, where the source knows it.
    pub kind: MemoryKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A block was handed out.
    Allocate,
    /// A block was given back; [`Action::FreeCompleted`] follows when no stream uses it any more.
    FreeRequested,
    /// The memory of a block that was given back is free.
    FreeCompleted,
    /// Another stream uses a block (PyTorch: `record_stream`).
    Use,
    /// A region was gained from the device (PyTorch: `segment_alloc`).
    RegionGained,
    /// A region went back to the device (PyTorch: `segment_free`).
    RegionLost,
    /// Pages were mapped into a region that grows in place (PyTorch: `segment_map`).
    Mapped,
    /// Pages were unmapped (PyTorch: `segment_unmap`).
    Unmapped,
    /// A request failed.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// The program said something: the event's text.
    Annotation,
}

/// What does not fit together in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A block is freed that was never allocated, nor there at the end as it would have to be.
    FreedUnknown {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The block.
        address: u64,
    },
    /// A block is allocated over one that lives.
    Overlap {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The new block.
        address: u64,
    },
    /// A block lives at the end by the events, and no segment has it.
    NotInSegments {
        /// Which device.
        device: u32,
        /// The block.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// The blocks of a segment do not cover it.
    BrokenSegment {
        /// Which device.
        device: u32,
        /// The segment.
        address: u64,
    },
    /// The bytes of a freed block are not those that were allocated.
    SizeDiffers {
        /// Which device.
        device: u32,
        /// The place of the event, from 0.
        event: usize,
        /// The block.
        address: u64,
    },
    /// A file ends before its end. What it has up to there is used.
    CutOff {
        /// The byte at which the last whole part ends.
        at: u64,
    },
    /// A file is damaged. What it has before that is used.
    Damaged {
        /// The byte at which the damaged part begins.
        at: u64,
    },
    /// So many more warnings are not kept.
    More {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FreedUnknown { device, event, address } => {
                write!(f, "device {device}, event {event}: frees a block at {address:#x} that is not there")
            }
            Self::Overlap { device, event, address } => {
                write!(f, "device {device}, event {event}: allocates at {address:#x}, where a block lives")
            }
            Self::NotInSegments { device, address, bytes } => {
                write!(f, "device {device}: the block of {bytes} bytes at {address:#x} is in no segment")
            }
            Self::BrokenSegment { device, address } => {
                write!(f, "device {device}: the blocks of the segment at {address:#x} do not cover it")
            }
            Self::SizeDiffers { device, event, address } => {
                write!(
                    f,
                    "device {device}, event {event}: frees {address:#x} with another size than it was allocated with"
                )
            }
            Self::CutOff { at } => write!(f, "the file is cut off: what follows byte {at} is not whole"),
            Self::Damaged { at } => write!(f, "the file is damaged: nothing from byte {at} on can be used"),
            Self::More { count } => write!(f, "and {count} more"),
        }
    }
}
