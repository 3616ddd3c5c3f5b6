//! The observers of one allocator.

use super::{Event, Observer, RegionWatch, SharedObserver};
use orlop_sync::UnreadValues;
use std::sync::Arc;

/// An observer of an allocator, and its region events.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) observer: SharedObserver,
    pub(crate) regions: Arc<RegionWatch>,
}

/// The observers of an allocator, replaced as a whole when one is added or removed. Never empty: an allocator
/// without observers has no list.
#[derive(Debug)]
pub(crate) struct WatchList {
    watches: Box<[Watch]>,
    watches_blocks: bool,
}

impl WatchList {
    /// Returns a list of `watches`, or `None` if there are none.
    pub(crate) fn new(watches: Vec<Watch>) -> Option<Arc<Self>> {
        let watches_blocks = watches.iter().any(|watch| watch.observer.watches_blocks());
        (!watches.is_empty()).then(|| Arc::new(Self { watches: watches.into(), watches_blocks }))
    }

    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// Returns `true` if one of the observers watches blocks.
    pub(crate) fn watches_blocks(&self) -> bool {
        self.watches_blocks
    }

    pub(crate) fn find(&self, observer: &Arc<dyn Observer>) -> Option<&Watch> {
        self.watches.iter().find(|watch| Arc::ptr_eq(&watch.observer, observer))
    }

    /// Returns the name of the allocator.
    pub(crate) fn allocator(&self) -> &str {
        self.watches.first().map_or("", |watch| watch.regions.allocator())
    }

    /// Calls the observers that watch blocks.
    pub(crate) fn observe_block(&self, event: &Event<'_>) {
        for watch in self.watches.iter().filter(|watch| watch.observer.watches_blocks()) {
            watch.observer.notify(event);
        }
    }

    /// Calls every observer.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.watches.iter().for_each(|watch| watch.observer.notify(event));
    }

    /// Delivers the recorded region events. Call it with no lock held.
    pub(crate) fn deliver(&self) {
        self.watches.iter().for_each(|watch| watch.regions.deliver());
    }

    /// Delivers the recorded region events and ends all watches.
    pub(crate) fn end(&self) {
        self.watches.iter().for_each(|watch| watch.regions.end());
        self.watches.iter().for_each(|watch| watch.regions.deliver_or_end());
    }
}

/// Region events that observers are about to receive. They are delivered when this is dropped: drop it with
/// no lock held.
#[derive(Debug, Default)]
pub struct RegionDelivery {
    watches: Vec<Arc<RegionWatch>>,
    /// Former lists: they may be the last owners of observers, whose destructors may run any code.
    lists: Vec<UnreadValues<Arc<WatchList>>>,
}

impl RegionDelivery {
    pub(crate) fn of(watches: Vec<Arc<RegionWatch>>, lists: Vec<UnreadValues<Arc<WatchList>>>) -> Self {
        Self { watches, lists }
    }

    /// Appends what `other` delivers.
    pub fn append(&mut self, mut other: Self) {
        self.watches.append(&mut other.watches);
        self.lists.append(&mut other.lists);
    }
}

impl Drop for RegionDelivery {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.deliver_or_end();
        }
    }
}
