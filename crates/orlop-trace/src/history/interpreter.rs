//! The meaning of events for blocks: one interpretation of a recording, shared by all replays.
//!
//! Events name blocks by address. The interpreter knows which block is live or pending at each address, so
//! that a replay gets its own block with every event, and events that contradict earlier ones are recognized.

use super::{EventAction, HistoryEvent};
use foldhash::HashMap;

/// The meaning of an event in terms of a replay's own blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockEvent<Block> {
    /// A block is allocated where none is live. The replay [inserts](EventInterpreter::insert) its own block.
    Allocate,
    /// A block is allocated where another is live: the recording lacks the free of the other.
    Overlap,
    /// Another stream uses the block.
    Use(Block),
    /// The block is freed.
    Free {
        /// The block.
        block: Block,
        /// Streams still use its memory: [`BlockEvent::Completed`] follows, or the recording ends first.
        pending: bool,
        /// Only the completion of the free was recorded, not its request.
        unrequested: bool,
    },
    /// No stream uses the pending block any more.
    Completed(Block),
    /// A request failed.
    Failed,
}

/// Interprets the events of one device, in order.
///
/// ```
/// use orlop_trace::history::{BlockEvent, EventAction, EventInterpreter, HistoryEvent};
///
/// let mut interpreter = EventInterpreter::new();
/// let allocate = HistoryEvent::new(EventAction::Allocate, 512, 100);
/// let free = HistoryEvent::new(EventAction::FreeRequested, 512, 100);
/// assert_eq!(interpreter.event(&allocate, Some(&free)), Some(BlockEvent::Allocate));
/// interpreter.insert(512, "mine");
/// let freed = BlockEvent::Free { block: "mine", pending: false, unrequested: false };
/// assert_eq!(interpreter.event(&free, None), Some(freed));
/// assert_eq!(interpreter.event(&free, None), None);
/// ```
#[derive(Debug, Clone)]
pub struct EventInterpreter<Block> {
    live: HashMap<u64, Block>,
    pending: HashMap<u64, Block>,
    /// Whether the source records completions. In such a source most completions directly follow the free; a
    /// block whose completion comes later is pending. It is unknown before the first completion, so no block
    /// counts as pending until then.
    has_completions: bool,
}

impl<Block> Default for EventInterpreter<Block> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Block> EventInterpreter<Block> {
    /// Creates an interpreter without blocks.
    #[must_use]
    pub fn new() -> Self {
        Self { live: HashMap::default(), pending: HashMap::default(), has_completions: false }
    }

    /// Makes `block` the live block at `address`. Returns the one that it replaces.
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        self.live.insert(address, block)
    }

    /// Makes `block` pending at `address`: it was freed before the first event, and streams still use its
    /// memory.
    pub fn insert_pending(&mut self, address: u64, block: Block) {
        self.pending.insert(address, block);
    }

    /// Returns `true` if `event`, followed by `next`, frees a block that stays pending.
    fn stays_pending(&mut self, event: &HistoryEvent, next: Option<&HistoryEvent>) -> bool {
        match event.action {
            EventAction::FreeCompleted => self.has_completions = true,
            EventAction::FreeRequested if self.has_completions => {
                let completes = |next: &HistoryEvent| {
                    next.action == EventAction::FreeCompleted && next.address == event.address
                };
                return !next.is_some_and(completes);
            }
            _ => {}
        }
        false
    }
}

impl<Block: Copy> EventInterpreter<Block> {
    /// Interprets an event that is followed by `next`. Returns `None` for events that are not about blocks or
    /// contradict earlier events.
    pub fn event(&mut self, event: &HistoryEvent, next: Option<&HistoryEvent>) -> Option<BlockEvent<Block>> {
        let pending = self.stays_pending(event, next);
        match event.action {
            EventAction::Allocate if self.live.contains_key(&event.address) => Some(BlockEvent::Overlap),
            EventAction::Allocate => Some(BlockEvent::Allocate),
            EventAction::Use => self.live.get(&event.address).map(|&block| BlockEvent::Use(block)),
            // Some blocks have a completion only (PyTorch: those that are freed with a graph's pool). A
            // completion of a block that is not pending is ignored.
            EventAction::FreeRequested | EventAction::FreeCompleted => match self.live.remove(&event.address)
            {
                Some(block) => {
                    if pending {
                        self.pending.insert(event.address, block);
                    }
                    let unrequested = event.action == EventAction::FreeCompleted;
                    Some(BlockEvent::Free { block, pending, unrequested })
                }
                None => self.pending.remove(&event.address).map(BlockEvent::Completed),
            },
            EventAction::OutOfMemory => Some(BlockEvent::Failed),
            _ => None,
        }
    }
}
