//! The observers of a context: each is added to every allocator that the context counts.

use super::Context;
use orlop_alloc::engine_support::{RegionDelivery, SharedObserver};
use orlop_alloc::{AllocatorRef, Event, Observer};
use orlop_sync::{SwapCell, UnreadValues};
use std::sync::Arc;

/// The observers of a context: one relaxed load while there are none.
#[derive(Default)]
pub(super) struct ObserverList(SwapCell<Arc<[SharedObserver]>>);

impl ObserverList {
    pub(super) fn all(&self) -> Vec<SharedObserver> {
        self.0.cloned().map_or_else(Vec::new, |all| all.to_vec())
    }

    /// Replaces the observers. Returns previous lists.
    fn set(&self, observers: Vec<SharedObserver>) -> [UnreadValues<Arc<[SharedObserver]>>; 2] {
        // A thread may be reading the list.
        [self.0.set((!observers.is_empty()).then(|| observers.into())), self.0.settle()]
    }

    /// Reports an event of the context itself.
    pub(super) fn observe(&self, event: &Event<'_>) {
        if let Some(observers) = self.0.cloned() {
            observers.iter().for_each(|observer| observer.notify(event));
        }
    }

    /// Adds the observers to an allocator.
    pub(super) fn add_to(&self, allocator: &AllocatorRef) -> RegionDelivery {
        let mut delivery = RegionDelivery::default();
        delivery.extend(self.all().iter().map(|observer| allocator.add_shared_observer(observer)));
        delivery
    }
}

impl std::fmt::Debug for ObserverList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl Context {
    /// Adds an observer to all allocators registered here, now and later, to those passed for single
    /// requests, and to external memory; see [`AllocatorRef::add_observer`]. Adding it again changes nothing.
    ///
    /// An allocator that several contexts use reports to the observers of all of them.
    pub fn add_observer(&self, observer: Arc<dyn Observer>) {
        let observer = SharedObserver::new(observer);
        let changing = self.changing();
        let mut observers = self.inner.observers.all();
        if observers.iter().any(|known| Arc::ptr_eq(known, &observer)) {
            return;
        }
        observers.push(observer.clone());
        let before = self.inner.observers.set(observers);
        let explicit = self.explicit_allocators();
        let delivery = self.at_each(&explicit, |allocator| allocator.add_shared_observer(&observer));
        drop(changing);
        // Any of these may be the last handle by now.
        drop((before, explicit));
        drop(delivery);
    }

    /// Removes an observer from all allocators of this context; also from those that another context with the
    /// same observer uses.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) {
        let changing = self.changing();
        let mut observers = self.inner.observers.all();
        observers.retain(|known| !Arc::ptr_eq(known, observer));
        let before = self.inner.observers.set(observers);
        let explicit = self.explicit_allocators();
        let delivery = self.at_each(&explicit, |allocator| allocator.remove_observer(observer));
        drop(changing);
        drop((before, explicit));
        drop(delivery);
    }

    /// Returns the observers, in the order in which they were added.
    #[must_use]
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.inner.observers.all().iter().map(|observer| Arc::clone(observer)).collect()
    }

    /// Collects what `change` returns for each allocator that is counted, `explicit` ones included.
    fn at_each(
        &self,
        explicit: &[AllocatorRef],
        change: impl Fn(&AllocatorRef) -> RegionDelivery,
    ) -> RegionDelivery {
        let mut delivery = RegionDelivery::default();
        for routes in self.devices().into_iter().filter_map(|device| self.inner.routes.get(device)) {
            delivery.extend(routes.counted().into_iter().map(&change));
            delivery.extend(routes.external.all().map(|account| change(&account)));
        }
        delivery.extend(explicit.iter().map(change));
        delivery
    }

    /// Returns the allocators that were passed for single requests, on all devices. Drop them with no lock
    /// held: the destructor of an allocator may run arbitrary code.
    fn explicit_allocators(&self) -> Vec<AllocatorRef> {
        let devices = self.devices().into_iter();
        let routes = devices.filter_map(|device| self.inner.routes.get(device));
        routes.flat_map(|routes| routes.explicit.all()).filter_map(|weak| weak.upgrade()).collect()
    }
}
