//! The observer of the global allocator.
//!
//! It is called while the thread is inside the engine, so that what it allocates comes from the system: it
//! neither waits for itself nor observes itself. It stays for the rest of the process, because any thread may
//! be calling it.

use super::GlobalAllocator;
use crate::observer::SharedObserver;
use crate::{Event, Observer, RawBlock};
use std::sync::{Arc, OnceLock};

static OBSERVER: OnceLock<SharedObserver> = OnceLock::new();

/// The name of the allocator in events.
pub(super) const NAME: &str = "global";

impl GlobalAllocator {
    /// Calls `observer` for every block that is allocated or freed from here on, for the rest of the process:
    /// a recorder, for example. Returns `false`, and changes nothing, if there is one already.
    ///
    /// The blocks have the kind and the tag of their [scope](GlobalAllocator::scope). They include the header
    /// of the memory. What the observer allocates itself comes from the system and is in no event. Blocks
    /// that are live already are in no event until they are freed. The engine's regions are not reported.
    ///
    /// ```
    /// use orlop_alloc::bare::GlobalAllocator;
    /// use orlop_alloc::{Event, Observer};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// #[global_allocator]
    /// static GLOBAL: GlobalAllocator = GlobalAllocator;
    ///
    /// #[derive(Default)]
    /// struct LargeBlocks(AtomicUsize);
    ///
    /// impl Observer for LargeBlocks {
    ///     fn observe(&self, event: &Event<'_>) {
    ///         match event {
    ///             Event::Allocated { block, .. } if block.requested >= 1 << 20 => {
    ///                 self.0.fetch_add(1, Ordering::Relaxed);
    ///             }
    ///             _ => {}
    ///         }
    ///     }
    /// }
    ///
    /// let large = Arc::new(LargeBlocks::default());
    /// assert!(GlobalAllocator::observe(Arc::clone(&large) as Arc<dyn Observer>));
    /// assert!(!GlobalAllocator::observe(Arc::new(LargeBlocks::default())));
    /// drop([vec![0u8; 1 << 20], vec![0u8; 1000], vec![0u8; 2 << 20]]);
    /// assert_eq!(large.0.load(Ordering::Relaxed), 2);
    /// ```
    pub fn observe(observer: Arc<dyn Observer>) -> bool {
        OBSERVER.set(SharedObserver::new(observer)).is_ok()
    }
}

/// Reports an allocation. The thread is inside the engine.
#[inline]
pub(super) fn notify_allocated(block: &RawBlock) {
    if let Some(observer) = OBSERVER.get() {
        observer.notify(&Event::Allocated { block, allocator: NAME });
    }
}

/// Reports a free, before it. The thread is inside the engine.
#[inline]
pub(super) fn notify_freed(block: &RawBlock) {
    if let Some(observer) = OBSERVER.get() {
        observer.notify(&Event::Freed { block, allocator: NAME });
    }
}
