//! The observer of the global allocator.
//!
//! It is called while the thread is inside the engine, so that what it allocates comes from the system: it
//! neither waits for itself nor observes itself. It stays for the rest of the process, because any thread may
//! be calling it.

use super::GlobalAllocator;
use crate::observer::SharedObserver;
use crate::{Event, Observer, RawBlock};
use orlop_host::shield::InsideGuard;
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
    /// An observer that takes a lock deadlocks on a thread that holds this lock and allocates or frees, such
    /// as one that reads what was observed: use [`GlobalAllocator::unobserved`] there.
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
    #[must_use = "`false`: the process has another observer, and this one is never called"]
    pub fn observe(observer: Arc<dyn Observer>) -> bool {
        OBSERVER.set(SharedObserver::new(observer)).is_ok()
    }

    /// Runs `f` without the observer on this thread: what `f` allocates comes from the system and is in no
    /// event, and blocks that it frees are returned, and reported, later.
    ///
    /// So a lock that the observer takes can be held while memory is allocated:
    ///
    /// ```
    /// use orlop_alloc::bare::GlobalAllocator;
    /// use orlop_alloc::{Event, Observer};
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, Mutex, PoisonError};
    ///
    /// #[global_allocator]
    /// static GLOBAL: GlobalAllocator = GlobalAllocator;
    ///
    /// /// Blocks by size in bytes.
    /// #[derive(Default)]
    /// struct Sizes(Mutex<HashMap<usize, u64>>);
    ///
    /// impl Observer for Sizes {
    ///     fn observe(&self, event: &Event<'_>) {
    ///         if let Event::Allocated { block, .. } = event {
    ///             let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
    ///             *sizes.entry(block.requested).or_default() += 1;
    ///         }
    ///     }
    /// }
    ///
    /// let sizes = Arc::new(Sizes::default());
    /// assert!(GlobalAllocator::observe(Arc::clone(&sizes) as Arc<dyn Observer>));
    /// drop(vec![0u8; 1000]);
    /// // Without `unobserved`, the copy would wait for the lock that is held here.
    /// let copy = GlobalAllocator::unobserved(|| sizes.0.lock().map(|sizes| sizes.clone()).unwrap());
    /// assert!(!copy.is_empty());
    /// ```
    pub fn unobserved<R>(f: impl FnOnce() -> R) -> R {
        let _inside = InsideGuard::enter();
        f()
    }
}

/// Returns the observer, if it watches blocks.
#[inline]
fn blocks_observer() -> Option<&'static SharedObserver> {
    OBSERVER.get().filter(|observer| observer.watches_blocks())
}

/// Reports an allocation. The thread is inside the engine.
#[inline]
pub(super) fn notify_allocated(block: &RawBlock) {
    if let Some(observer) = blocks_observer() {
        observer.notify(&Event::Allocated { block, allocator: NAME });
    }
}

/// Reports a free, before it. The thread is inside the engine.
#[inline]
pub(super) fn notify_freed(block: &RawBlock) {
    if let Some(observer) = blocks_observer() {
        observer.notify(&Event::Freed { block, allocator: NAME });
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use std::alloc::{GlobalAlloc, Layout};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct RegionsOnly(AtomicUsize);

    impl Observer for RegionsOnly {
        fn observe(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn watches_blocks(&self) -> bool {
            false
        }
    }

    #[test]
    fn an_observer_that_does_not_watch_blocks_gets_none() {
        let observer = Arc::new(RegionsOnly::default());
        assert!(GlobalAllocator::observe(Arc::clone(&observer) as Arc<dyn Observer>));
        let layout = Layout::new::<[u64; 100]>();
        // SAFETY: the layout has a size.
        let memory = unsafe { GlobalAllocator.alloc(layout) };
        assert!(!memory.is_null());
        // SAFETY: allocated above, with this layout.
        unsafe { GlobalAllocator.dealloc(memory, layout) };
        assert_eq!(observer.0.load(Ordering::Relaxed), 0);
    }
}
