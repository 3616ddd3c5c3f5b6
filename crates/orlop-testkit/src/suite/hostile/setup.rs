//! The allocator of a hostile program, with its surroundings.

use crate::backings::{BackingCounters, CountingBacking};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::any::Any;
use std::sync::Arc;

/// Creates allocators, on any thread.
pub(super) enum HostileFactory {
    Alone(Box<dyn Fn() -> AllocatorRef + Send + Sync>),
    Over {
        base: Box<dyn Fn() -> BackingRef + Send + Sync>,
        make: Box<dyn Fn(BackingRef) -> AllocatorRef + Send + Sync>,
    },
}

/// A new allocator with its surroundings.
pub(super) struct HostileSetup {
    pub(super) allocator: AllocatorRef,
    /// The counters of its backing, if the suite controls it.
    pub(super) counts: Option<Arc<BackingCounters>>,
    /// Values that are kept until the program ends.
    pub(super) kept: Vec<Box<dyn Any>>,
}

impl HostileFactory {
    pub(super) fn plain(&self) -> HostileSetup {
        self.with(|backing| backing)
    }

    /// Creates an allocator with a wrapper around its backing, if the suite controls the backing.
    pub(super) fn with(&self, between: impl FnOnce(BackingRef) -> BackingRef) -> HostileSetup {
        match self {
            Self::Alone(make) => HostileSetup { allocator: make(), counts: None, kept: Vec::new() },
            Self::Over { base, make } => {
                let (counting, counts) = CountingBacking::new(base());
                let allocator = make(between(Arc::new(counting)));
                HostileSetup { allocator, counts: Some(counts), kept: Vec::new() }
            }
        }
    }

    /// Creates an allocator with a wrapper around its backing; `None` if the suite does not control the
    /// backing.
    pub(super) fn over(&self, between: impl FnOnce(BackingRef) -> BackingRef) -> Option<HostileSetup> {
        matches!(self, Self::Over { .. }).then(|| self.with(between))
    }
}
