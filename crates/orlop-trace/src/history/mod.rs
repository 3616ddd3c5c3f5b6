//! The model of a recording: what happened on the devices of a process. Every reader produces it, and every
//! tool takes it.
//!
//! A history is of a part of a run, mostly. It has what was there when it began ([`DeviceHistory::start`], or
//! [`DeviceHistory::unplaced`] where no segments are known), what happened ([`DeviceHistory::events`]) and
//! what was there in the end ([`DeviceHistory::end`]). Call sites are kept once, in [`Sites`]; events name
//! them by number, and are 48 bytes. What few events have is beside them ([`DeviceHistory::details`]).
//!
//! [`History::read`] takes any file that this crate knows. Where a source has what was there in the end but
//! not what was there in the beginning, that is worked out ([`History::find_start`]).

mod action;
mod address_ranges;
mod annotation;
mod equal;
mod interpreter;
mod sites;
mod size_rules;
mod start;
mod timeline;
mod warning;
mod workload;

use orlop_core::torch::{ConfError, TorchConf};
use orlop_core::{MemoryKind, StreamId};

pub use self::action::EventAction;
pub use self::address_ranges::{AddressRange, carve};
pub use self::annotation::{Annotation, Stage};
pub use self::interpreter::{BlockEvent, EventInterpreter};
pub use self::sites::{Frame, SiteId, Sites, TextId};
pub use self::size_rules::SizeRules;
pub use self::timeline::Timeline;
pub(crate) use self::warning::warn;
pub use self::warning::{HistoryWarning, MAX_WARNINGS};
pub use self::workload::{WorkBlock, WorkStep, Workload};

/// What happened, on all devices.
///
/// Two are equal if they say the same: numbers of sites and texts may differ, and warnings, which are about a
/// source, do not count.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct History {
    /// By device; those on which nothing happened and nothing was are left out.
    pub devices: Vec<DeviceHistory>,
    /// Call sites and texts that the devices' records name.
    pub sites: Sites,
    /// The allocator's settings, as the source has them (PyTorch: `PYTORCH_CUDA_ALLOC_CONF`).
    pub settings: Option<String>,
    /// What the program said about itself beside the events, in the order of the source (PyTorch:
    /// `external_annotations`).
    pub annotations: Vec<Annotation>,
    /// What does not fit together in the source. It is told, and the rest is used.
    pub warnings: Vec<HistoryWarning>,
}

/// What happened on one device.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DeviceHistory {
    /// Its number.
    pub device: u32,
    /// Bytes of memory it has, where the source says so.
    pub memory: Option<u64>,
    /// Segments and blocks when the first event happened, in order of address. Sources that have only events
    /// have none.
    pub start: Vec<Segment>,
    /// Unplaced blocks: live when the first event happened, in no known segment. Sources that record only
    /// blocks have these. A known sum of bytes without known blocks is one block, at an address that no other
    /// has.
    pub unplaced: Vec<SegmentBlock>,
    /// In the order in which they happened.
    pub events: Vec<HistoryEvent>,
    /// What only some events have, in the order of the events; [`DeviceHistory::detail`] finds it.
    pub details: Vec<EventDetail>,
    /// Segments and blocks after the last event, in order of address. Empty where the source does not tell.
    pub end: Vec<Segment>,
    /// The most bytes that the allocator held from the device, as the source counted them; `None` where it
    /// did not, and where its segments tell.
    pub counted_reserved: Option<u64>,
}

const _: () = assert!(size_of::<HistoryEvent>() == 48);

impl History {
    /// PyTorch's [`settings`](History::settings) as far as they are understood, and what is wrong with the
    /// rest: the recorded run may have had a later version, or an earlier one. Where the source does not tell
    /// of settings ([`History::settings`] is `None`) these are PyTorch's defaults, and the run may have had
    /// another allocator.
    #[must_use]
    pub fn torch_conf(&self) -> (TorchConf, Vec<ConfError>) {
        TorchConf::known(self.settings.as_deref().unwrap_or_default())
    }
}

impl DeviceHistory {
    /// Creates the history of device 0 from its events alone.
    #[must_use]
    pub fn from_events(events: Vec<HistoryEvent>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Whether the source tells of segments at all. Where it does not, nothing is known of what blocks are
    /// in.
    #[must_use]
    pub fn has_segments(&self) -> bool {
        let gains = |action| matches!(action, EventAction::RegionReserved | EventAction::Mapped);
        !self.start.is_empty() || self.events.iter().any(|event| gains(event.action))
    }

    /// What an event has beside what all have; `None` where that is nothing.
    #[must_use]
    pub fn detail(&self, event: usize) -> Option<&EventDetail> {
        let place = self.details.binary_search_by_key(&event, |detail| detail.event as usize).ok()?;
        self.details.get(place)
    }
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

/// A piece of a [`Segment`], or a block of which no segment is known ([`DeviceHistory::unplaced`]).
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

/// An event of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryEvent {
    /// When, in nanoseconds; only differences mean anything.
    pub time: u64,
    /// Of the block or region. For [`EventAction::OutOfMemory`] the bytes that the device had free.
    pub address: u64,
    /// How many bytes were asked for, given back, gained or lost.
    pub bytes: u64,
    /// The stream of the block, or the stream that uses it ([`EventAction::Use`]).
    pub stream: StreamId,
    /// Where in the program.
    pub site: SiteId,
    /// What it belongs to: a tag, an annotation's name. [`TextId::NONE`] where there is none.
    pub text: TextId,
    /// Which thread; 0 where the source does not tell.
    pub thread: u32,
    /// What happened.
    pub action: EventAction,
    /// What the memory is for, where the source knows it.
    pub kind: MemoryKind,
}

impl HistoryEvent {
    /// At time 0 on the default stream, by an unknown site on thread 0: the least that there is to tell. The
    /// fields are for the rest.
    #[must_use]
    pub fn new(action: EventAction, address: u64, bytes: u64) -> Self {
        Self {
            time: 0,
            address,
            bytes,
            stream: StreamId::DEFAULT,
            site: SiteId::UNKNOWN,
            text: TextId::NONE,
            thread: 0,
            action,
            kind: MemoryKind::Default,
        }
    }
}

/// What only some events have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDetail {
    /// The event's place, from 0.
    pub event: u32,
    /// What was being compiled or run compiled (PyTorch: `compile_context`); [`TextId::NONE`] if nothing.
    pub context: TextId,
    /// The private pool that it happened in; (0, 0) is the common one.
    pub pool: (u64, u64),
}
