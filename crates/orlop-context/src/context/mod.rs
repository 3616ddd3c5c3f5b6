//! The execution context: allocators, device operations and the current stream by device; budgets and
//! accounts by kind; the reclaim ladder when memory is short.
//!
//! ```
//! use orlop_context::Context;
//! use orlop_alloc::Request;
//! use orlop_core::{Device, MemoryKind};
//!
//! let context = Context::new();
//! let weights = context.allocate(Device::CPU, &Request::new(1 << 20).kind(MemoryKind::Persistent))?;
//! assert_eq!(context.stats(Device::CPU).kind(MemoryKind::Persistent).live_bytes, weights.capacity() as u64);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```
//!
//! # Finding an allocator
//!
//! The allocator registered for (device, kind); else the one for the device's default kind; else, on the CPU,
//! the one that [`AllocatorConfig`] chooses, created at that point, and on other devices the one of the
//! [factory](crate::registry::Registry::register_for) with the highest priority. Otherwise
//! [`Error::NoAllocator`].
//!
//! # The current context
//!
//! Pass a context along, or use [`Context::current`]: the innermost [`Context::scope`] of this thread, else
//! the process's default. Nothing in the crate needs a global context.

mod budget;
mod callbacks;
mod copy;
mod cpu;
mod device_memory;
mod explicit;
mod external;
mod gate;
mod identity;
mod ladder;
mod map;
mod observe;
mod reclaim;
mod requests;
mod routes;
mod scope;
mod typed;

pub use self::budget::{Budget, BudgetStatus};
pub use self::callbacks::PressureGuard;
pub use self::identity::ContextId;
pub use self::ladder::{Pressure, PressureCallback, PressureId, StepCount};
pub(crate) use self::map::sum_bytes;
pub use self::map::{AllocatorUse, KindUse, MemoryMap, Source};

use self::ladder::LadderCounts;
use self::observe::{AddedObservers, ObserverList};
use self::routes::{DeviceRoutes, Routes, RoutesRef};
use crate::registry::{AllocatorConfig, registry};
use orlop_alloc::engine_support::ContextHandle as _;
use orlop_alloc::{AllocatorRef, Error, Result, Stats};
use orlop_core::{Device, MemoryKind, StreamId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A shared context. Cloning it costs one reference count.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: ContextId,
    /// Whether a budget was ever set.
    has_budgets: AtomicBool,
    default_device: Device,
    routes: Routes,
    cpu: AllocatorConfig,
    observers: ObserverList,
    counts: LadderCounts,
    callbacks: Mutex<callbacks::Callbacks>,
    /// The number of changes of budgets, observers and registrations: see [`Context::change`].
    changes: Mutex<u64>,
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl Context {
    /// Creates a context with the CPU as the default device, configured by the environment (see
    /// [`AllocatorConfig::from_env`]).
    #[must_use]
    pub fn new() -> Self {
        Self::with(Device::CPU, AllocatorConfig::from_env())
    }

    /// Creates a context with this default device and this configuration of the CPU's allocator.
    #[must_use]
    pub fn with(default_device: Device, cpu: AllocatorConfig) -> Self {
        let inner = Inner {
            id: ContextId::new(),
            has_budgets: AtomicBool::new(false),
            default_device,
            routes: Routes::default(),
            cpu,
            observers: ObserverList::default(),
            counts: LadderCounts::default(),
            callbacks: Mutex::default(),
            changes: Mutex::default(),
        };
        identity::entered(Arc::new(inner))
    }

    /// Returns the device for tensors that name none.
    #[must_use]
    pub fn default_device(&self) -> Device {
        self.inner.default_device
    }

    /// Registers `allocator` for `kind` on `device`; under [`MemoryKind::Default`], also for all kinds that
    /// have none of their own there. The allocator registered before serves no new requests. It stays alive
    /// until the context is dropped, and its blocks stay valid.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the allocator is on another device, [`Error::InvalidRequest`] for a host
    /// kind on another device.
    pub fn register(
        &self,
        device: Device,
        kind: MemoryKind,
        allocator: impl Into<AllocatorRef>,
    ) -> Result<()> {
        self.register_if(device, kind, &allocator.into(), |_| true)
    }

    /// Registers an allocator, unless the registrations are no longer those that `is_wanted` accepts.
    fn register_if(
        &self,
        device: Device,
        kind: MemoryKind,
        allocator: &AllocatorRef,
        is_wanted: impl Fn(&DeviceRoutes) -> bool,
    ) -> Result<()> {
        use orlop_alloc::Allocator as _;
        kind.check_on(device)?;
        if allocator.device() != device {
            return Err(Error::WrongDevice { device, actual: allocator.device() });
        }
        let routes = self.inner.routes.get_or_new(device);
        let (mut added, mut gate) = (AddedObservers::default(), None);
        let prepare = || {
            if !is_wanted(&routes) {
                added.keep(allocator, &[]);
                return None;
            }
            self.add_observers(&routes, allocator, &mut added);
            let serving = match routes.accounts() {
                // Blocks that come through a gate are charged there.
                Some(accounts) if !routes.is_over_gate(allocator) => {
                    gate.get_or_insert_with(|| self.gate(allocator, accounts))
                }
                _ => allocator,
            };
            Some(serving.clone())
        };
        self.change(prepare, |serving| {
            serving.as_ref().map(|serving| {
                // Its gate charges it from now on; its own statistics no longer do.
                let delivery = routes.explicit.forget(allocator);
                if !serving.same_as(allocator) {
                    routes.add_gate(allocator, serving);
                }
                // Blocks lead to the context by it.
                allocator.set_context_number(self.id().number());
                serving.set_context_number(self.id().number());
                // In this order: a thread that sees the registration finds an allocator that serves.
                routes.serve(kind, serving.clone());
                routes.register(kind, allocator.clone());
                delivery
            })
        });
        Ok(())
    }

    /// Returns the allocator for `kind` on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAllocator`]; at the first use of the CPU, errors in its configuration.
    pub fn allocator(&self, device: Device, kind: MemoryKind) -> Result<AllocatorRef> {
        kind.check_on(device)?;
        self.device(device, kind)?.get(kind).cloned().ok_or(Error::NoAllocator { device, kind })
    }

    /// Returns `true` if `is` accepts the allocator that serves `kind` on `device`, or the one behind its
    /// budget gate. Creates no allocator, and clones no handle.
    #[must_use]
    pub fn is_served_by(&self, device: Device, kind: MemoryKind, is: impl Fn(&AllocatorRef) -> bool) -> bool {
        let Some(routes) = self.inner.routes.get(device) else { return false };
        let behind = || routes.registered(kind).or_else(|| routes.registered(MemoryKind::Default));
        routes.get(kind).is_some_and(&is) || behind().is_some_and(&is)
    }

    /// Returns a device's routes. If it has no default allocator, creates those of the CPU, or registers the
    /// one that the process's registry has for the device. `kind` is for the error.
    #[inline]
    fn device(&self, device: Device, kind: MemoryKind) -> Result<RoutesRef<'_>> {
        match self.inner.routes.get(device) {
            Some(routes) if routes.registered(MemoryKind::Default).is_some() => Ok(routes),
            _ => self.make_device(device, kind),
        }
    }

    #[cold]
    fn make_device(&self, device: Device, kind: MemoryKind) -> Result<RoutesRef<'_>> {
        if !device.is_cpu() {
            return self.make_other_device(device, kind);
        }
        let (default, pinned) = (self.inner.cpu.make()?, self.inner.cpu.make_pinned()?);
        // The default kind last: other threads take its registration as a sign that both exist.
        for (kind, allocator) in [(MemoryKind::HostPinned, pinned), (MemoryKind::Default, default)] {
            self.register_if(device, kind, &allocator, |routes| routes.registered(kind).is_none())?;
        }
        Ok(self.inner.routes.get_or_new(device))
    }

    fn make_other_device(&self, device: Device, kind: MemoryKind) -> Result<RoutesRef<'_>> {
        kind.check_on(device)?;
        if let Some(allocator) = registry().allocator_for(device)? {
            let is_wanted = |routes: &DeviceRoutes| routes.registered(MemoryKind::Default).is_none();
            self.register_if(device, MemoryKind::Default, &allocator, is_wanted)?;
        }
        self.inner.routes.get(device).ok_or(Error::NoAllocator { device, kind })
    }

    /// Changes the routes, so that changes of budgets, observers and registrations see each other.
    ///
    /// `prepare` calls what allocators' authors wrote, which may do anything, so no lock is held; `commit`
    /// calls nothing of theirs, and returns `None` if it changes nothing. If there was another change
    /// meanwhile, `prepare` is called again. The results are dropped with no lock held.
    fn change<P, R>(&self, mut prepare: impl FnMut() -> P, commit: impl FnOnce(&P) -> Option<R>) {
        loop {
            let before = *self.changes();
            let prepared = prepare();
            let mut changes = self.changes();
            if *changes == before {
                let committed = commit(&prepared);
                *changes += u64::from(committed.is_some());
                drop(changes);
                return;
            }
        }
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        self.inner.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statistics of `device`, summed over all memory that is counted: the allocators that are or
    /// were registered, those passed for single requests ([`Context::allocate_from`]), and external memory
    /// ([`Context::adopt`]), of which the live bytes count as reserved. [`Context::memory_map`] shows the
    /// parts. The peak of a sum does not follow from its parts: the peaks are sums of the allocators' peaks,
    /// an upper bound.
    #[must_use]
    pub fn stats(&self, device: Device) -> Stats {
        let mut sum = Stats::default();
        let Some(routes) = self.inner.routes.get(device) else { return sum };
        for (_, _, stats) in map::stats_by_source(&routes) {
            sum.totals.add(&stats.totals);
            sum.usage.reserved = sum.usage.reserved.saturating_add(stats.usage.reserved);
            sum.usage.peak_reserved = sum.usage.peak_reserved.saturating_add(stats.usage.peak_reserved);
            sum.usage.regions = sum.usage.regions.saturating_add(stats.usage.regions);
            sum.usage.deferred = sum.usage.deferred.saturating_add(stats.usage.deferred);
            sum.usage.metadata = sum.usage.metadata.saturating_add(stats.usage.metadata);
            sum.refused_frees = sum.refused_frees.saturating_add(stats.refused_frees);
            sum.has_unpinned |= stats.has_unpinned;
        }
        sum
    }

    /// Returns the devices that have a registration or counted memory.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.inner.routes.devices()
    }

    /// Releases the cached memory of every allocator that is or was registered on `device`. Returns the bytes
    /// released.
    pub fn trim(&self, device: Device) -> u64 {
        use orlop_alloc::Allocator as _;
        let Some(routes) = self.inner.routes.get(device) else { return 0 };
        sum_bytes(routes.counted().into_iter().map(|allocator| allocator.trim(0)))
    }

    /// Returns the stream for new work on `device`: the one this thread has chosen, else the context's.
    #[must_use]
    pub fn stream(&self, device: Device) -> StreamId {
        scope::stream(self.id(), device).unwrap_or_else(|| {
            let set = self.inner.routes.get(device).map_or(StreamId::HOST, |routes| routes.stream());
            if set == StreamId::HOST { StreamId::default_of(device) } else { set }
        })
    }

    /// Sets the context's stream for `device`.
    pub fn set_stream(&self, device: Device, stream: StreamId) {
        self.inner.routes.get_or_new(device).set_stream(stream);
    }

    /// Runs `f` with another current stream for `device`, on this thread.
    pub fn on_stream<R>(&self, device: Device, stream: StreamId, f: impl FnOnce() -> R) -> R {
        scope::on_stream(self.id(), device, stream, f)
    }

    /// Runs `f` with this as the thread's current context.
    pub fn scope<R>(&self, f: impl FnOnce() -> R) -> R {
        scope::enter(self, f)
    }

    /// Returns `true` if both are clones of one context.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the thread's current context.
    #[must_use]
    pub fn current() -> Self {
        scope::with_current_or(None, Self::clone)
    }

    /// Runs `f` on the thread's current context, without a reference count.
    #[inline]
    pub fn with_current<R>(f: impl FnOnce(&Self) -> R) -> R {
        scope::with_current_or(None, f)
    }

    /// Runs `f` on the chosen context, or on the thread's current one if none is chosen, without a reference
    /// count.
    #[inline]
    pub fn with_current_or<R>(chosen: Option<&Self>, f: impl FnOnce(&Self) -> R) -> R {
        scope::with_current_or(chosen, f)
    }

    /// Makes this the process's default context. It can be set once, before the default is first used.
    ///
    /// # Errors
    ///
    /// [`Error::ContextAlreadySet`] if there is a default context already.
    pub fn set_process_default(self) -> Result<()> {
        scope::set_process_default(self).map_err(|_| Error::ContextAlreadySet)
    }
}
