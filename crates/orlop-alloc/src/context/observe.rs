//! The observer of a context, and where it is set: in every allocator that the context counts.

use super::Context;
use crate::AllocatorRef;
use crate::observer::{Observer, deliver_all, is_same};
use std::sync::Arc;

impl Context {
    /// Returns the observer, if one is set.
    #[must_use]
    pub fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.inner.observer.cloned()
    }

    /// Sets the observer of all allocators registered here, now and later, and of external memory; see
    /// [`AllocatorRef::set_observer`]. It also observes allocators passed for single requests, unless they
    /// have an observer of their own.
    pub fn set_observer(&self, observer: Option<Arc<dyn Observer>>) {
        let changing = self.changing();
        let before = self.inner.observer.set(observer.clone());
        let mut watches = self.collect_from_each(|allocator| allocator.put_observer(observer.clone()));
        let explicit = self.explicit_allocators();
        watches.extend(explicit.iter().flat_map(|allocator| {
            let mut watches = Vec::new();
            if let Some(before) = &before {
                watches = allocator.put_in_place_of(before, observer.clone());
            }
            if let Some(observer) = observer.clone() {
                watches.extend(allocator.put_first_observer(observer));
            }
            watches
        }));
        drop((changing, before));
        // Any of these may be the last handle by now.
        drop(explicit);
        deliver_all(&watches);
    }

    /// Replaces the observer `ours`, wherever it is set.
    pub(crate) fn replace_observer(&self, ours: &Arc<dyn Observer>, observer: Option<&Arc<dyn Observer>>) {
        let changing = self.changing();
        let is_ours = |now: Option<&Arc<dyn Observer>>| now.is_some_and(|now| is_same(now, ours));
        let before = self.inner.observer.set_if(observer.cloned(), is_ours);
        let mut watches =
            self.collect_from_each(|allocator| allocator.put_in_place_of(ours, observer.cloned()));
        let explicit = self.explicit_allocators();
        watches
            .extend(explicit.iter().flat_map(|allocator| allocator.put_in_place_of(ours, observer.cloned())));
        drop((changing, before));
        drop(explicit);
        deliver_all(&watches);
    }

    /// Collects what `give` returns for each counted allocator of all devices.
    pub(crate) fn collect_from_each<T>(&self, give: impl Fn(&AllocatorRef) -> Vec<T>) -> Vec<T> {
        let mut given = Vec::new();
        for routes in self.devices().into_iter().filter_map(|device| self.inner.routes.get(device)) {
            given.extend(routes.counted().into_iter().flat_map(&give));
            given.extend(routes.external.all().flat_map(|account| give(&account)));
        }
        given
    }

    /// Returns the allocators that were passed for single requests, on all devices. Drop them with no lock
    /// held: the destructor of an allocator may run arbitrary code.
    fn explicit_allocators(&self) -> Vec<AllocatorRef> {
        let devices = self.devices().into_iter();
        let routes = devices.filter_map(|device| self.inner.routes.get(device));
        routes.flat_map(|routes| routes.explicit.all()).filter_map(|weak| weak.upgrade()).collect()
    }
}
