//! What was allocated since some moment and is still alive.
//!
//! Unlike [`Tracking`](crate::adaptor::Tracking), which stands before one allocator from its first block on, a check looks
//! at all of a context's, between any two moments.

use super::leak_report::Leaks;
use super::observers::{Listening, Observers};
use super::shapes::{self, TensorShape, Wanted};
use crate::{AllocationId, Context, Event, Observer, RawBlock, Tag};
use dashmap::DashMap;
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A block that came and has not gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBlock {
    /// Which allocation since the check began, from zero.
    pub order: u64,
    /// Its name.
    pub id: AllocationId,
    /// Where it begins.
    pub address: usize,
    /// Where it is.
    pub device: Device,
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes granted.
    pub granted: usize,
    /// What it is for.
    pub kind: MemoryKind,
    /// Who asked.
    pub tag: Tag,
    /// The tensor it was allocated for, if it was for one.
    pub shape: Option<TensorShape>,
}

/// A leak check: begins when it is made, and says at its end what is still alive of all that was allocated between, on
/// any thread.
///
/// ```
/// use orlop_alloc::profile::LeakCheck;
/// use orlop_alloc::{Context, Request, Tag};
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
    _listening: Listening,
    _wanted: Wanted,
    observers: Observers,
}

impl LeakCheck {
    /// Over all allocators of a context, in the place of its observer (see [the module](super)). To have other profiles
    /// at the same time: [`LeakCheck::with`].
    pub fn on(context: &Context) -> Self {
        Self::with(&Observers::on(context))
    }

    /// Over whatever these observers watch.
    pub fn with(observers: &Observers) -> Self {
        let live = Arc::new(LiveBlocks::default());
        let listening = observers.add(Arc::clone(&live) as Arc<dyn Observer>);
        Self { live, _listening: listening, _wanted: Wanted::new(), observers: observers.clone() }
    }

    /// What is alive now. The check goes on.
    pub fn so_far(&self) -> Leaks {
        let mut blocks: Vec<LiveBlock> = self.live.blocks.iter().map(|entry| entry.value().clone()).collect();
        blocks.sort_unstable_by_key(|block| block.order);
        Leaks::new(blocks, self.live.refused.load(Ordering::Relaxed), self.observers.missed())
    }

    /// What is alive now, at the end of the check. Exact at a quiet moment: a block that another thread is just about to
    /// return is alive.
    pub fn finish(self) -> Leaks {
        self.so_far()
    }
}

/// What tells blocks apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Id(AllocationId),
    /// Of an allocator that gives no ids: where it is while it lives.
    Address(usize),
}

impl Name {
    fn of(id: AllocationId, address: usize) -> Self {
        if id == AllocationId::NONE { Self::Address(address) } else { Self::Id(id) }
    }
}

#[derive(Default)]
struct LiveBlocks {
    blocks: DashMap<Name, LiveBlock>,
    order: AtomicU64,
    refused: AtomicU64,
}

impl LiveBlocks {
    fn came(&self, block: &RawBlock) {
        let came = LiveBlock {
            // Relaxed: an order among those that can tell.
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
        self.blocks.insert(Name::of(came.id, came.address), came);
    }

    /// Nothing goes if the block came before the check.
    fn went(&self, id: AllocationId, address: usize) {
        self.blocks.remove(&Name::of(id, address));
    }
}

impl Observer for LiveBlocks {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } => self.came(block),
            Event::Freed { block, .. } => self.went(block.id, block.address()),
            Event::RawFreed { address, found, .. } => self.went(found.id, *address),
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
