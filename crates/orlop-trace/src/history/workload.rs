//! A workload: a device's history as requests in order, with blocks by number and their lifetimes.
//!
//! Without addresses a workload can be replayed through any allocator, and planned.

use super::{BlockEvent, BlockState, DeviceHistory, EventInterpreter, SiteId, TextId};
use orlop_core::{MemoryKind, StreamId};

/// A block of a [`Workload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkBlock {
    /// Requested bytes.
    pub bytes: u64,
    /// The recorded address; used only as a key for comparisons.
    pub address: u64,
    /// The stream of the request.
    pub stream: StreamId,
    /// The call site.
    pub site: SiteId,
    /// The tag.
    pub text: TextId,
    /// The memory kind.
    pub kind: MemoryKind,
    /// The private pool that it comes from; (0, 0) is the default pool.
    pub pool: (u64, u64),
    /// The step that allocates it; `None` if it was live at the start.
    pub born: Option<usize>,
    /// The step that frees it; `None` if it is live at the end.
    pub died: Option<usize>,
    /// Whether its free stays pending, until the step [`Completed`](WorkStep::Completed) or the end.
    pub stays_pending: bool,
}

impl WorkBlock {
    /// Creates a request: a block of `bytes` bytes on `stream`, without address and lifetime.
    #[must_use]
    pub fn new(bytes: u64, stream: StreamId) -> Self {
        Self {
            bytes,
            address: 0,
            stream,
            site: SiteId::UNKNOWN,
            text: TextId::NONE,
            kind: MemoryKind::default(),
            pool: (0, 0),
            born: None,
            died: None,
            stays_pending: false,
        }
    }
}

/// A step of a [`Workload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStep {
    /// Allocates a block.
    Allocate(u32),
    /// Another stream uses a block.
    Use(u32, StreamId),
    /// Frees a block.
    Free(u32),
    /// Completes the pending free of a block ([`WorkBlock::stays_pending`]).
    Completed(u32),
    /// A request of this many bytes that failed in the recording.
    Failed(u64, StreamId),
}

/// The requests of a program to the allocator of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// The blocks. Those that were live at the start come first, in the order of
    /// [`start`](DeviceHistory::start) and [`unplaced`](DeviceHistory::unplaced).
    pub blocks: Vec<WorkBlock>,
    /// The steps, in order.
    pub steps: Vec<WorkStep>,
    /// The event of the history that each step comes from.
    pub events: Vec<u32>,
    /// The number of blocks that were live at the start.
    pub at_start: usize,
}

impl Workload {
    /// Creates the workload of a device. Events that contradict earlier ones (see
    /// [`HistoryWarning`](super::HistoryWarning)) are skipped.
    #[must_use]
    pub fn of(history: &DeviceHistory) -> Self {
        let mut work = Self::default();
        let mut interpreter = EventInterpreter::new();
        let pieces = history.start.iter().flat_map(|segment| {
            let live = segment.blocks.iter().filter(|block| block.state == BlockState::Live);
            live.map(|block| (segment.stream, segment.pool, block))
        });
        let outside = history.unplaced.iter().map(|block| (StreamId::from_raw(0), (0, 0), block));
        for (stream, pool, block) in pieces.chain(outside) {
            let requested = WorkBlock { pool, ..WorkBlock::new(block.requested, stream) };
            let id = work.push(WorkBlock { address: block.address, site: block.site, ..requested });
            interpreter.insert(block.address, id);
        }
        work.at_start = work.blocks.len();
        for (place, event) in (0..).zip(&history.events) {
            let next = history.events.get(place as usize + 1);
            let step = match interpreter.event(event, next) {
                Some(BlockEvent::Allocate) => {
                    let id = work.push(WorkBlock {
                        bytes: event.bytes,
                        address: event.address,
                        stream: event.stream,
                        site: event.site,
                        text: event.text,
                        kind: event.kind,
                        pool: history.pool(place as usize),
                        born: Some(work.steps.len()),
                        died: None,
                        stays_pending: false,
                    });
                    interpreter.insert(event.address, id);
                    WorkStep::Allocate(id)
                }
                Some(BlockEvent::Use(id)) => WorkStep::Use(id, event.stream),
                Some(BlockEvent::Free { block: id, pending, .. }) => {
                    let block = &mut work.blocks[id as usize];
                    (block.died, block.stays_pending) = (Some(work.steps.len()), pending);
                    WorkStep::Free(id)
                }
                Some(BlockEvent::Completed(id)) => WorkStep::Completed(id),
                Some(BlockEvent::Failed) => WorkStep::Failed(event.bytes, event.stream),
                Some(BlockEvent::Overlap) | None => continue,
            };
            work.steps.push(step);
            work.events.push(place);
        }
        work
    }

    fn push(&mut self, block: WorkBlock) -> u32 {
        // Readers refuse histories of 2^32 events.
        let id = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        self.blocks.push(block);
        id
    }

    /// Returns the blocks that are live before a step, in order of allocation.
    pub fn live_blocks(&self, step: usize) -> impl Iterator<Item = &WorkBlock> {
        self.blocks.iter().filter(move |block| {
            block.born.is_none_or(|born| born < step) && block.died.is_none_or(|died| died >= step)
        })
    }

    /// Returns the live bytes before a step, as requested.
    #[must_use]
    pub fn live_before(&self, step: usize) -> u64 {
        self.live_blocks(step).fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// Returns the peak of live bytes, as requested, and the first step after which it was reached.
    #[must_use]
    pub fn peak(&self) -> (u64, Option<usize>) {
        // The sizes come from a file: their sum may exceed 2^64.
        let bytes = |id: u32| u128::from(self.blocks[id as usize].bytes);
        let mut live: u128 = self.blocks[..self.at_start].iter().map(|block| u128::from(block.bytes)).sum();
        let mut peak = (live, None);
        for (place, step) in self.steps.iter().enumerate() {
            match *step {
                WorkStep::Allocate(id) => live += bytes(id),
                WorkStep::Free(id) => live -= bytes(id),
                WorkStep::Completed(_) | WorkStep::Use(..) | WorkStep::Failed(..) => {}
            }
            if live > peak.0 {
                peak = (live, Some(place));
            }
        }
        (u64::try_from(peak.0).unwrap_or(u64::MAX), peak.1)
    }
}
