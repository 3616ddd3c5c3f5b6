//! A shared observer, as the lists of allocators and contexts hold it.

use super::Observer;
use orlop_host::shield::{report, shielded};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

/// A shared observer that was asked once whether it watches blocks, and whose destructor cannot unwind into
/// the code that drops it: that may be in the middle of a free.
#[derive(Clone)]
pub struct SharedObserver {
    observer: ManuallyDrop<Arc<dyn Observer>>,
    watches_blocks: bool,
    watches_regions: bool,
}

impl SharedObserver {
    /// Calls [`Observer::watches_blocks`], which may run any code: call this with no lock held. An observer
    /// that panics there watches blocks.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        let watches_blocks = shielded(|| observer.watches_blocks()).unwrap_or_else(|| {
            report(|| tracing::error!("an observer panicked in `watches_blocks`"));
            true
        });
        Self { observer: ManuallyDrop::new(observer), watches_blocks, watches_regions: true }
    }

    /// Returns the observer for an allocator that [hands out the blocks](crate::Allocator::wraps) of another
    /// one that it observes: that one reports blocks and regions, once, and this one what it refuses.
    #[must_use]
    pub fn of_adaptor(&self) -> Self {
        let observer = ManuallyDrop::new(Arc::clone(self));
        Self { observer, watches_blocks: false, watches_regions: false }
    }

    /// Sets whether the observer receives events of blocks, unless it is [of an adaptor](Self::of_adaptor).
    pub(crate) fn set_watches_blocks(&mut self, watches: bool) {
        self.watches_blocks = watches && self.watches_regions;
    }

    /// Returns `true` if the observer receives events of blocks.
    pub(crate) fn watches_blocks(&self) -> bool {
        self.watches_blocks
    }

    /// Returns `true` if the observer receives events of regions.
    pub(crate) fn watches_regions(&self) -> bool {
        self.watches_regions
    }
}

impl Deref for SharedObserver {
    type Target = Arc<dyn Observer>;

    #[inline]
    fn deref(&self) -> &Arc<dyn Observer> {
        &self.observer
    }
}

impl Drop for SharedObserver {
    fn drop(&mut self) {
        // SAFETY: it is taken only here, once.
        let observer = unsafe { ManuallyDrop::take(&mut self.observer) };
        let _ended = shielded(|| drop(observer));
    }
}

impl fmt::Debug for SharedObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
