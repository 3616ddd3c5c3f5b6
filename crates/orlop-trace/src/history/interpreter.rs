//! What events mean for blocks: the one interpretation of a recording that all replays share.
//!
//! Events name blocks by address. The interpreter keeps which block is live or pending at which address, so
//! that a replay gets its own block back with every event, and events that do not follow from those before
//! are recognized.

use super::{EventAction, HistoryEvent};
use std::collections::HashMap;

/// What an event means, in terms of a replay's own blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockEvent<Block> {
    /// A block is allocated where none is live. The replay [inserts](EventInterpreter::insert) its own.
    Allocate,
    /// A block is allocated where another is live, whose free the recording lacks.
    Overlap,
    /// Another stream uses the block.
    Use(Block),
    /// The block is freed.
    Free {
        /// Which.
        block: Block,
        /// Streams still use its memory: [`BlockEvent::Completed`] follows, or the recording ends before.
        pending: bool,
        /// Nothing requested the free: only its completion was recorded.
        unrequested: bool,
    },
    /// No stream uses a pending block any more.
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
    /// The source records completions. One that does has them right behind the free, mostly; a block whose
    /// completion comes later is pending. Before the first completion nothing is taken for pending: whether
    /// the source records them is not known then.
    has_completions: bool,
}

impl<Block> Default for EventInterpreter<Block> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Block> EventInterpreter<Block> {
    /// Creates an interpreter that knows of no block.
    #[must_use]
    pub fn new() -> Self {
        Self { live: HashMap::new(), pending: HashMap::new(), has_completions: false }
    }

    /// Makes `block` the live block at `address` and returns the one that was.
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        self.live.insert(address, block)
    }

    /// Makes `block` pending at `address`: it was freed before the first event, and streams still use its
    /// memory.
    pub fn insert_pending(&mut self, address: u64, block: Block) {
        self.pending.insert(address, block);
    }

    /// Returns whether `event`, followed by `next`, frees a block that stays pending.
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
    /// Interprets an event, which `next` follows. Returns `None` for events that are not about blocks, and
    /// for those that do not follow from the events before.
    pub fn event(&mut self, event: &HistoryEvent, next: Option<&HistoryEvent>) -> Option<BlockEvent<Block>> {
        let pending = self.stays_pending(event, next);
        match event.action {
            EventAction::Allocate if self.live.contains_key(&event.address) => Some(BlockEvent::Overlap),
            EventAction::Allocate => Some(BlockEvent::Allocate),
            EventAction::Use => self.live.get(&event.address).map(|&block| BlockEvent::Use(block)),
            // A completion without a request is all that a source records of some blocks (PyTorch: those that
            // go with a graph's pool); one after a request whose block is not pending means nothing.
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
