//! The model of a recording: the events on the devices of a process. Every reader produces it, every tool
//! takes it.
//!
//! A history usually covers part of a run. It has the state at the start ([`DeviceHistory::start`], or
//! [`DeviceHistory::unplaced`] if no segments are known), the events ([`DeviceHistory::events`]) and the
//! state at the end ([`DeviceHistory::end`]). Call sites are stored once, in [`Sites`]; an event has 48 bytes
//! and refers to them by id. Rare facts are stored beside the events ([`DeviceHistory::details`]).
//!
//! [`History::read`] reads any format of this crate. If a source has the state at the end only, the state at
//! the start is computed ([`History::find_start`]).

mod action;
mod address_ranges;
mod annotation;
mod chunk_map;
mod equal;
mod external;
mod interner;
mod interpreter;
mod refusal;
mod segment_map;
mod sites;
mod size_rules;
mod start;
mod timeline;
mod warning;
mod workload;

use orlop_core::torch::{ConfError, TorchConf, TorchReleases};
use orlop_core::{MemoryKind, StreamId};

pub use self::action::EventAction;
pub use self::address_ranges::{AddressRange, carve};
pub use self::annotation::{Annotation, AnnotationStage};
pub use self::external::ExternalBlocks;
pub(crate) use self::interner::Interner;
pub use self::interpreter::{BlockEvent, EventInterpreter};
pub(crate) use self::refusal::cause_from_name;
pub use self::refusal::{RefusalDetail, RefusalOutcome};
use self::segment_map::SegmentMap;
pub(crate) use self::segment_map::{SegmentRange, merge_adjacent};
pub use self::sites::{Frame, SiteId, Sites, TextId};
pub use self::size_rules::SizeRules;
pub use self::timeline::Timeline;
pub use self::warning::{HistoryWarning, MAX_WARNINGS};
pub use self::workload::{WorkBlock, WorkStep, Workload};

/// The recording of a process, on all devices.
///
/// Two histories are equal if their contents are: ids of sites and texts may differ, and warnings and
/// releases are not compared.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct History {
    /// The devices. Those without events and without memory are omitted.
    pub devices: Vec<DeviceHistory>,
    /// The call sites and texts that the devices' records refer to.
    pub sites: Sites,
    /// The settings of the allocator, as the source has them (PyTorch: `PYTORCH_CUDA_ALLOC_CONF`).
    pub settings: Option<String>,
    /// The releases of PyTorch that can have written the source, by what it contains; all, if it is not
    /// PyTorch's.
    pub releases: TorchReleases,
    /// The annotations that the program set, in the order of the source (PyTorch: `external_annotations`).
    pub annotations: Vec<Annotation>,
    /// Inconsistencies of the source. The rest of it is used.
    pub warnings: Vec<HistoryWarning>,
}

/// The recording of one device.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DeviceHistory {
    /// The number of the device.
    pub device: u32,
    /// The size of its memory in bytes, if the source has it.
    pub memory: Option<u64>,
    /// Segments and blocks before the first event, in order of address. Empty if the source has only events.
    pub start: Vec<Segment>,
    /// Unplaced blocks: live before the first event, in no known segment. Sources that record only blocks
    /// have these. A known sum of bytes without known blocks is one block, at an address that is otherwise
    /// unused.
    pub unplaced: Vec<SegmentBlock>,
    /// The events, in order.
    pub events: Vec<HistoryEvent>,
    /// Facts that only some events have, in the order of the events; see [`DeviceHistory::detail`].
    pub details: Vec<EventDetail>,
    /// Facts about refused requests, in the order of the events; see [`DeviceHistory::refusal`].
    pub refusals: Vec<RefusalDetail>,
    /// Segments and blocks after the last event, in order of address. Empty if the source does not have them.
    pub end: Vec<Segment>,
    /// The peak of reserved bytes as counted by the source. `None` if it does not count, or records segments.
    pub counted_reserved: Option<u64>,
}

const _: () = assert!(size_of::<HistoryEvent>() == 48);

impl History {
    /// Parses PyTorch's [`settings`](History::settings). Returns the options that are understood, and the
    /// errors of the others: the recorded run may have had another version. Without settings
    /// ([`History::settings`] is `None`) these are PyTorch's defaults, and the run may have had another
    /// allocator.
    #[must_use]
    pub fn torch_conf(&self) -> (TorchConf, Vec<ConfError>) {
        TorchConf::known(self.settings.as_deref().unwrap_or_default())
    }

    /// Returns the number of the device with the most events; `None` if there are no devices.
    #[must_use]
    pub fn busiest_device(&self) -> Option<u32> {
        self.devices.iter().max_by_key(|device| device.events.len()).map(|device| device.device)
    }
}

impl DeviceHistory {
    /// Creates the history of device 0 from its events alone.
    #[must_use]
    pub fn from_events(events: Vec<HistoryEvent>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Returns `true` if the source records segments. If not, the segments of blocks are unknown.
    #[must_use]
    pub fn has_segments(&self) -> bool {
        !self.start.is_empty() || self.events.iter().any(|event| event.action.adds_region())
    }

    /// Returns the additional facts about an event, if there are any.
    #[must_use]
    pub fn detail(&self, event: usize) -> Option<&EventDetail> {
        let index = self.details.binary_search_by_key(&event, |detail| detail.event as usize).ok()?;
        self.details.get(index)
    }

    /// Returns what is known about a refusal; `None` for other events, and if the source does not have it.
    #[must_use]
    pub fn refusal(&self, event: usize) -> Option<&RefusalDetail> {
        let index = self.refusals.binary_search_by_key(&event, |refusal| refusal.event as usize).ok()?;
        self.refusals.get(index)
    }

    /// Returns the private pool of an event; (0, 0) is the default pool.
    #[must_use]
    pub fn pool(&self, event: usize) -> (u64, u64) {
        self.detail(event).map_or((0, 0), |detail| detail.pool)
    }
}

/// A region that an allocator reserved from the device (PyTorch: segment).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The stream whose blocks it serves.
    pub stream: StreamId,
    /// Whether it serves small requests (PyTorch: up to 1 MiB).
    pub small: bool,
    /// Whether it grows in place by mapping pages.
    pub expandable: bool,
    /// The private pool it belongs to; (0, 0) is the default pool.
    pub pool: (u64, u64),
    /// The call site that caused the reservation.
    pub site: SiteId,
    /// Its chunks in order of address, without gaps.
    pub blocks: Vec<SegmentBlock>,
}

/// A chunk of a [`Segment`], or a block in no known segment ([`DeviceHistory::unplaced`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentBlock {
    /// The first address.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The requested bytes; of a free chunk, those of the last request.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// The call site of the request.
    pub site: SiteId,
}

impl SegmentBlock {
    /// Creates a free chunk.
    #[must_use]
    pub const fn free(address: u64, bytes: u64) -> Self {
        Self { address, bytes, requested: 0, state: BlockState::Free, site: SiteId::UNKNOWN }
    }
}

/// Whether a chunk of a segment is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use.
    Live,
    /// Freed, but a stream may still use it.
    Pending,
    /// Free.
    Free,
}

/// An event of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryEvent {
    /// The time in nanoseconds; only differences are meaningful.
    pub time: u64,
    /// The address of the block or region. For [`EventAction::OutOfMemory`] and [`EventAction::Refused`], the
    /// bytes that were left: of the device, the limit or the budget.
    pub address: u64,
    /// The requested bytes of a block, or the length of a region.
    pub bytes: u64,
    /// The stream of the block, or the stream that uses it ([`EventAction::Use`]).
    pub stream: StreamId,
    /// The call site.
    pub site: SiteId,
    /// A tag, or an annotation's name. [`TextId::NONE`] if there is none.
    pub text: TextId,
    /// The thread; 0 if unknown.
    pub thread: u32,
    /// What happened.
    pub action: EventAction,
    /// The memory kind, if the source has it.
    pub kind: MemoryKind,
}

impl HistoryEvent {
    /// Creates an event at time 0 on the default stream, with an unknown site and thread 0.
    #[must_use]
    pub fn new(action: EventAction, address: u64, bytes: u64) -> Self {
        Self {
            time: 0,
            address,
            bytes,
            stream: StreamId::from_raw(0),
            site: SiteId::UNKNOWN,
            text: TextId::NONE,
            thread: 0,
            action,
            kind: MemoryKind::Default,
        }
    }
}

/// Facts that only some events have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDetail {
    /// The index of the event.
    pub event: u32,
    /// The compilation in progress (PyTorch: `compile_context`); [`TextId::NONE`] if none.
    pub context: TextId,
    /// The private pool; (0, 0) is the default pool.
    pub pool: (u64, u64),
}
