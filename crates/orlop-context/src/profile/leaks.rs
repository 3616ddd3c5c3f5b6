//! The leak check: blocks that were allocated since it began and are still live.
//!
//! Unlike [`Tracking`](orlop_alloc::adaptor::Tracking), which wraps one allocator from its first block on, a
//! check covers all allocators of a context, between any two points in time.

use super::leak_report::{Leaks, LiveBlock};
use super::shapes::{self, ShapeRecording};
use crate::Context;
use crate::observe::Subscription;
use dashmap::DashMap;
use orlop_alloc::{AllocationId, AllocatorRef, Event, Observer, engine_support::RawBlock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A leak check: it starts when it is created, and reports what is still live of all blocks allocated since,
/// on any thread.
///
/// ```
/// use orlop_context::profile::LeakCheck;
/// use orlop_alloc::{Request, Tag};
/// use orlop_context::Context;
/// use orlop_core::Device;
///
/// let context = Context::new();
/// let check = LeakCheck::on(&context);
/// let kept = context.allocate(Device::CPU, &Request::new(1000).tag(Tag::new("embedding")))?;
/// drop(context.allocate(Device::CPU, &Request::new(1 << 20))?);
/// let leaks = check.finish();
/// assert_eq!(leaks.blocks().len(), 1);
/// assert_eq!(leaks.blocks()[0].id, kept.id());
/// assert!(leaks.to_string().contains("embedding"));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the check is over when this is dropped"]
pub struct LeakCheck {
    live: Arc<LiveBlocks>,
    _subscription: Subscription,
    _recording: ShapeRecording,
}

impl LeakCheck {
    /// Starts a check over all allocators of a context.
    pub fn on(context: &Context) -> Self {
        Self::subscribed(|live| Subscription::on(context, live))
    }

    /// Starts a check over one allocator.
    pub fn on_allocator(allocator: &AllocatorRef) -> Self {
        Self::subscribed(|live| Subscription::on_allocator(allocator, live))
    }

    fn subscribed(subscribe: impl FnOnce(Arc<dyn Observer>) -> Subscription) -> Self {
        let (live, recording) = (Arc::new(LiveBlocks::default()), ShapeRecording::new());
        let subscription = subscribe(Arc::clone(&live) as Arc<dyn Observer>);
        Self { live, _subscription: subscription, _recording: recording }
    }

    /// Returns the live blocks. The check continues.
    pub fn so_far(&self) -> Leaks {
        let mut blocks: Vec<LiveBlock> = self.live.blocks.iter().map(|entry| entry.value().clone()).collect();
        blocks.sort_unstable_by_key(|block| block.order);
        Leaks::new(blocks, self.live.refused.load(Ordering::Relaxed))
    }

    /// Ends the check and returns the live blocks. The result is exact if no other thread uses the
    /// allocators: a block that another thread is about to free is live.
    pub fn finish(self) -> Leaks {
        self.so_far()
    }
}

/// The key of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BlockKey {
    Id(AllocationId),
    /// The address, for allocators that assign no ids.
    Address(usize),
}

impl BlockKey {
    fn of(id: AllocationId, address: usize) -> Self {
        if id == AllocationId::NONE { Self::Address(address) } else { Self::Id(id) }
    }
}

#[derive(Default)]
struct LiveBlocks {
    blocks: DashMap<BlockKey, LiveBlock>,
    order: AtomicU64,
    refused: AtomicU64,
}

impl LiveBlocks {
    fn note_allocated(&self, block: &RawBlock) {
        let block = LiveBlock {
            // Relaxed: the order only has to be consistent for allocations that are ordered already.
            order: self.order.fetch_add(1, Ordering::Relaxed),
            id: block.id,
            address: block.address(),
            device: block.device,
            requested: block.requested,
            granted: block.granted,
            kind: block.kind,
            tag: block.tag,
            shape: shapes::of_block(block),
        };
        self.blocks.insert(BlockKey::of(block.id, block.address), block);
    }

    fn note_grown(&self, block: &RawBlock) {
        if let Some(mut known) = self.blocks.get_mut(&BlockKey::of(block.id, block.address())) {
            (known.granted, known.requested) = (block.granted, block.requested);
            // The shape of the tensor that it grew for.
            known.shape = shapes::of_block(block).or(known.shape.take());
        }
    }

    /// Does nothing if the block was allocated before the check.
    fn note_freed(&self, id: AllocationId, address: usize) {
        self.blocks.remove(&BlockKey::of(id, address));
    }
}

impl Observer for LiveBlocks {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } => self.note_allocated(block),
            Event::Grown { block, .. } => self.note_grown(block),
            Event::Freed { block, .. } => self.note_freed(block.id, block.address()),
            Event::RawFreed { address, found, .. } => self.note_freed(found.id, *address),
            Event::FreeRefused { .. } => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for LiveBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveBlocks").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}
