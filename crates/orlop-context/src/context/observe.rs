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
        let mut changes = self.changes();
        let mut observers = self.inner.observers.all();
        if observers.iter().any(|known| Arc::ptr_eq(known, &observer)) {
            return;
        }
        observers.push(observer.clone());
        let before = self.inner.observers.set(observers);
        *changes += 1;
        drop(changes);
        self.settle_observer(&observer);
        drop(before);
    }

    /// Removes an observer from all allocators of this context; also from those that another context with the
    /// same observer uses.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) {
        let mut changes = self.changes();
        let mut observers = self.inner.observers.all();
        let listed = observers.len();
        observers.retain(|known| !Arc::ptr_eq(known, observer));
        *changes += u64::from(observers.len() < listed);
        let before = self.inner.observers.set(observers);
        drop(changes);
        self.settle_observer(observer);
        drop(before);
    }

    /// Adds an observer to all allocators that are counted, or removes it from them, whichever the list says
    /// in the end. Those that are counted later read the list themselves.
    fn settle_observer(&self, observer: &Arc<dyn Observer>) {
        let find = || self.inner.observers.all().into_iter().find(|known| Arc::ptr_eq(known, observer));
        loop {
            let listed = find();
            self.at_each(|allocator, counted| {
                let Some(observer) = &listed else { return allocator.remove_observer(observer) };
                let of_adaptor = wraps_any(allocator, counted).then(|| observer.of_adaptor());
                allocator.add_shared_observer(of_adaptor.as_ref().unwrap_or(observer))
            });
            if find().is_some() == listed.is_some() {
                return;
            }
        }
    }

    /// Returns the observers, in the order in which they were added.
    #[must_use]
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.inner.observers.all().iter().map(|observer| Arc::clone(observer)).collect()
    }

    /// Adds the observers to an allocator that is about to be counted. If others that are counted hand out
    /// its blocks, it reports them in their place.
    pub(super) fn add_observers(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        added: &mut AddedObservers,
    ) {
        let observers = self.inner.observers.all();
        added.keep(allocator, &observers);
        if observers.is_empty() {
            return;
        }
        let explicit = routes.explicit.handles();
        let counted: Vec<_> = routes.counted().into_iter().chain(&explicit).collect();
        let (is_adaptor, own) = (wraps_any(allocator, &counted), [allocator]);
        for observer in &observers {
            if !allocator.has_observer(observer) {
                added.observers.push(observer.clone());
            }
            let of_adaptor = observer.of_adaptor();
            let own_observer = if is_adaptor { &of_adaptor } else { observer };
            added.delivery.append(allocator.add_shared_observer(own_observer));
            for adaptor in counted.iter().filter(|other| wraps_any(other, &own)) {
                added.delivery.append(adaptor.add_shared_observer(&of_adaptor));
            }
        }
    }

    /// Calls `change` with each allocator and all that are counted on its device, and delivers what it
    /// returns.
    fn at_each(&self, change: impl Fn(&AllocatorRef, &[&AllocatorRef]) -> RegionDelivery) {
        for routes in self.devices().into_iter().filter_map(|device| self.inner.routes.get(device)) {
            let explicit = routes.explicit.handles();
            let counted: Vec<_> = routes.counted().into_iter().chain(&explicit).collect();
            counted.iter().for_each(|allocator| drop(change(allocator, &counted)));
            routes.external.all().for_each(|account| drop(change(&account, &[])));
        }
    }
}

/// The observers that an allocator got because it is about to be counted. To be dropped with no lock held.
#[derive(Debug, Default)]
pub(super) struct AddedObservers {
    observers: Vec<SharedObserver>,
    pub(super) delivery: RegionDelivery,
}

impl AddedObservers {
    /// Removes those from the allocator that are not among `wanted`.
    pub(super) fn keep(&mut self, allocator: &AllocatorRef, wanted: &[SharedObserver]) {
        self.observers.retain(|added| {
            let is_wanted = wanted.iter().any(|observer| Arc::ptr_eq(observer, added));
            if !is_wanted {
                self.delivery.append(allocator.remove_observer(added));
            }
            is_wanted
        });
    }
}

/// Returns `true` if the allocator hands out blocks of one of the others.
fn wraps_any(allocator: &AllocatorRef, others: &[&AllocatorRef]) -> bool {
    others.iter().any(|other| !other.same_as(allocator) && allocator.wraps(other))
}
