//! The observers of a context: each is added to every allocator that the context counts.

use super::Context;
use super::routes::DeviceRoutes;
use orlop_alloc::engine_support::{ContextHandle as _, RegionDelivery, SharedObserver};
use orlop_alloc::{Allocator as _, AllocatorRef, Event, Observer};
use orlop_sync::{SwapCell, UnreadValues};
use std::sync::Arc;

/// The observers of a context: one relaxed load while there are none.
#[derive(Debug, Default)]
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
}

impl Context {
    /// Adds an observer to all allocators registered here, now and later, to those passed for single
    /// requests, and to external memory; see [`AllocatorRef::add_observer`]. Adding it again changes nothing.
    ///
    /// A block is reported once, as it is counted once: an adaptor over an allocator of the context, or an
    /// arena over one, reports only what it refuses.
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
        let delivery = self.at_each(|allocator, counted| {
            let of_adaptor = wraps_any(allocator, counted).then(|| observer.of_adaptor());
            allocator.add_shared_observer(of_adaptor.as_ref().unwrap_or(&observer))
        });
        drop(changing);
        // Any of these may be the last owner of something by now.
        drop((before, delivery));
    }

    /// Removes an observer from all allocators of this context; also from those that another context with the
    /// same observer uses.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) {
        let changing = self.changing();
        let mut observers = self.inner.observers.all();
        observers.retain(|known| !Arc::ptr_eq(known, observer));
        let before = self.inner.observers.set(observers);
        let delivery = self.at_each(|allocator, _| allocator.remove_observer(observer));
        drop(changing);
        drop((before, delivery));
    }

    /// Returns the observers, in the order in which they were added.
    #[must_use]
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.inner.observers.all().iter().map(|observer| Arc::clone(observer)).collect()
    }

    /// Adds the observers to an allocator that is counted from now on. If others that are counted hand out
    /// its blocks, it reports them in their place.
    pub(super) fn add_observers(&self, routes: &DeviceRoutes, allocator: &AllocatorRef) -> RegionDelivery {
        let mut delivery = RegionDelivery::default();
        let observers = self.inner.observers.all();
        if observers.is_empty() {
            return delivery;
        }
        let explicit = routes.explicit.handles();
        let counted: Vec<_> = routes.counted().into_iter().chain(&explicit).collect();
        let (is_adaptor, own) = (wraps_any(allocator, &counted), [allocator]);
        for observer in &observers {
            let of_adaptor = observer.of_adaptor();
            delivery.append(allocator.add_shared_observer(if is_adaptor { &of_adaptor } else { observer }));
            for adaptor in counted.iter().filter(|other| wraps_any(other, &own)) {
                delivery.append(adaptor.remove_observer(observer));
                delivery.append(adaptor.add_shared_observer(&of_adaptor));
            }
        }
        delivery.keep(explicit);
        delivery
    }

    /// Collects what `change` returns for each allocator and all that are counted on its device.
    fn at_each(&self, change: impl Fn(&AllocatorRef, &[&AllocatorRef]) -> RegionDelivery) -> RegionDelivery {
        let mut delivery = RegionDelivery::default();
        for routes in self.devices().into_iter().filter_map(|device| self.inner.routes.get(device)) {
            let explicit = routes.explicit.handles();
            let counted: Vec<_> = routes.counted().into_iter().chain(&explicit).collect();
            delivery.extend(counted.iter().map(|allocator| change(allocator, &counted)));
            delivery.extend(routes.external.all().map(|account| change(&account, &[])));
            delivery.keep(explicit);
        }
        delivery
    }
}

/// Returns `true` if the allocator hands out blocks of one of the others.
fn wraps_any(allocator: &AllocatorRef, others: &[&AllocatorRef]) -> bool {
    others.iter().any(|other| !other.same_as(allocator) && allocator.wraps(other))
}
