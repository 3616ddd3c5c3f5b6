//! Factories by device: which allocator a context has for a device that the program registered none for.

use super::{Entry, Factory, Registered, Registration, Registry};
use orlop_alloc::{AllocatorRef, Result};
use orlop_core::Device;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Registry {
    /// Registers a factory for `device`. A context that has no default allocator for the device gets that of
    /// the factory with the highest priority, at its first request there. All contexts share one allocator
    /// per factory: a device has one memory. For the CPU this is [`Registry::register`].
    ///
    /// ```
    /// use orlop_alloc::{Allocator, backing::Null, engine::Direct};
    /// use orlop_context::registry::{Factory, Registry};
    /// use orlop_core::Device;
    ///
    /// let (registry, gpu) = (Registry::new(), Device::cuda(0));
    /// for (name, priority) in [("plain", 0), ("preferred", 10), ("spare", -5)] {
    ///     let factory = Factory::new(name, priority, move |_| {
    ///         Ok(Direct::new(Null::new(gpu)).into_ref().erase())
    ///     });
    ///     let _ = registry.register_for(gpu, factory);
    /// }
    /// assert_eq!(&*registry.registered_for(gpu)[0].name, "preferred");
    /// assert!(registry.allocator_for(Device::cuda(1))?.is_none());
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[track_caller]
    pub fn register_for(&self, device: Device, factory: Factory) -> Registration {
        if device.is_cpu() {
            return self.register(factory);
        }
        let at = Location::caller();
        let mut entries = self.devices.entry(device).or_default();
        let is_same = |entry: &&Entry| {
            (entry.factory.name(), entry.factory.priority()) == (factory.name(), factory.priority())
        };
        if let Some(first) = entries.iter().find(is_same) {
            return Registration::AlreadyRegistered { at: first.at };
        }
        let is_late = entries.iter().any(|entry| entry.shared.is_made());
        let order = self.registrations.fetch_add(1, Ordering::Relaxed);
        entries.push(Entry { factory, at, order, shared: Arc::default() });
        entries.sort_by_key(Entry::rank);
        drop(entries);
        if !is_late {
            return Registration::New;
        }
        tracing::warn!(
            %device, %at,
            "an allocator factory was registered after the device's first allocation"
        );
        Registration::Late
    }

    /// Returns the shared allocator for `device` of the factory with the highest priority; `None` if there is
    /// no factory. No lock of the registry is held while the factory runs.
    ///
    /// # Errors
    ///
    /// For the CPU those of [`Registry::best_allocator`]; else those of the factory. The next call tries
    /// again.
    pub fn allocator_for(&self, device: Device) -> Result<Option<AllocatorRef>> {
        if device.is_cpu() {
            return self.best_allocator(None).map(Some);
        }
        let entry = self.devices.get(&device).and_then(|entries| entries.first().cloned());
        entry.map(|Entry { factory, shared, .. }| shared.allocator(&factory, None)).transpose()
    }

    /// Returns the factories for `device`, the preferred one first.
    #[must_use]
    pub fn registered_for(&self, device: Device) -> Vec<Registered> {
        if device.is_cpu() {
            return self.registered();
        }
        let entries = self.devices.get(&device);
        entries.iter().flat_map(|entries| entries.iter()).map(Entry::describe).collect()
    }
}
