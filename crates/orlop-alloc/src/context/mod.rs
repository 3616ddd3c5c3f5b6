//! The execution context (L10): which allocator serves a device and kind, who copies there, which stream is
//! current, what each kind holds, and what is done when memory is short.
//!
//! ```
//! use orlop_alloc::context::Context;
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
//! By (device, kind); if none is registered, the one for the device's default kind; on the CPU, if there is
//! none either, the one that [`CpuConfig`] chooses, made then; it documents the rule. Else
//! [`Error::NoAllocator`].
//!
//! # Which context
//!
//! Pass one along, or use [`Context::current`]: the innermost [`Context::scope`] of this thread, else the
//! process's default. Nothing in the crate needs a global one.

mod budget;
mod config;
mod copy;
mod cpu;
mod environment;
mod explicit;
mod external;
mod ladder;
mod map;
mod reclaim;
mod retaining_cell;
mod routes;
mod scope;

pub use self::budget::{Budget, Standing};
pub use self::config::CpuConfig;
pub use self::ladder::{LadderStep, Pressure, PressureCallback, PressureId, StepCount};
pub use self::map::{AllocatorUse, KindUse, MemoryMap, Source};

use self::ladder::Counts;
use self::routes::{Found, Routes};
use crate::observer::{Observer, ObserverSlot, RegionWatch, deliver_all, is_same};
use crate::{AllocatorRef, Block, DeviceMemory, Error, Request, Result, Stats};
use orlop_core::{Device, MemoryKind, StreamId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A shared context. Cloning costs one reference count.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Which context this is: never another's, as an address may be.
    number: u64,
    /// Whether a budget was ever set.
    has_budgets: AtomicBool,
    default_device: Device,
    routes: Routes,
    cpu: CpuConfig,
    observer: ObserverSlot,
    counts: Counts,
    callbacks: Mutex<reclaim::Callbacks>,
    /// Held while routes change, so that budgets, observers and registrations do not miss each other.
    changing: Mutex<()>,
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl Context {
    /// With the CPU as default device, configured by the environment (see [`CpuConfig::from_env`]).
    #[must_use]
    pub fn new() -> Self {
        Self::with(Device::CPU, CpuConfig::from_env())
    }

    /// With this default device and this choice of CPU allocator.
    #[must_use]
    pub fn with(default_device: Device, cpu: CpuConfig) -> Self {
        static CONTEXTS: AtomicU64 = AtomicU64::new(1);
        let inner = Inner {
            // Relaxed: numbers only need to differ.
            number: CONTEXTS.fetch_add(1, Ordering::Relaxed),
            has_budgets: AtomicBool::new(false),
            default_device,
            routes: Routes::default(),
            cpu,
            observer: ObserverSlot::default(),
            counts: Counts::default(),
            callbacks: Mutex::default(),
            changing: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The device that tensors go to unless told otherwise.
    #[must_use]
    pub fn default_device(&self) -> Device {
        self.inner.default_device
    }

    /// Makes `allocator` serve `kind` on `device`; with [`MemoryKind::Default`] also all kinds there that
    /// have none of their own (L20). The one before serves no new requests; its blocks live on, and it does
    /// until the context goes.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if it is elsewhere, [`Error::InvalidRequest`] for a host kind on another device.
    pub fn register(
        &self,
        device: Device,
        kind: MemoryKind,
        allocator: impl Into<AllocatorRef>,
    ) -> Result<()> {
        let changing = self.changing();
        let watches = self.register_locked(device, kind, allocator.into())?;
        drop(changing);
        deliver_all(&watches);
        Ok(())
    }

    /// Gives those who are to be told of regions once the lock is released.
    fn register_locked(
        &self,
        device: Device,
        kind: MemoryKind,
        allocator: AllocatorRef,
    ) -> Result<Vec<Arc<RegionWatch>>> {
        use crate::Allocator as _;
        kind.check_on(device)?;
        if allocator.device() != device {
            return Err(Error::WrongDevice { device, actual: allocator.device() });
        }
        let observer = self.inner.observer.cloned();
        let watches = observer.map(|observer| allocator.put_observer(Some(observer)));
        let routes = self.inner.routes.get_or_new(device);
        let serving = match routes.accounts() {
            // What comes by a gate is charged there.
            Some(accounts) if !routes.is_over_gate(&allocator) => {
                self.add_gate(&routes, allocator.clone(), accounts)
            }
            _ => allocator.clone(),
        };
        // It is charged by its gate from now on, and no longer by its own figures.
        routes.passed.forget(&allocator);
        // In this order: whoever sees the registration finds somebody who serves.
        routes.serve(kind, serving);
        routes.register(kind, allocator);
        Ok(watches.unwrap_or_default())
    }

    /// The allocator for `kind` on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAllocator`] naming both; what the CPU's configuration says when it is used first.
    pub fn allocator(&self, device: Device, kind: MemoryKind) -> Result<AllocatorRef> {
        kind.check_on(device)?;
        self.device(device, kind)?.get(kind).cloned().ok_or(Error::NoAllocator { device, kind })
    }

    /// Whether requests for `kind` on `device` go to an allocator for which `is` says so, or to one whose budget is kept
    /// before it. Makes no allocator, and counts no handle.
    #[must_use]
    pub fn is_served_by(&self, device: Device, kind: MemoryKind, is: impl Fn(&AllocatorRef) -> bool) -> bool {
        let Some(routes) = self.inner.routes.get(device) else { return false };
        let behind = || routes.registered(kind).or_else(|| routes.registered(MemoryKind::Default));
        routes.get(kind).is_some_and(&is) || behind().is_some_and(&is)
    }

    /// Gets a block for `request.kind` on `device`, climbing the reclaim ladder if need be.
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocator`], and [`Error::OutOfMemory`] with what was tried.
    #[inline]
    pub fn allocate(&self, device: Device, request: &Request) -> Result<Block> {
        if let Some(allocator) = self.inner.routes.place(device).and_then(|routes| routes.get(request.kind)) {
            let result = allocator.allocate(request);
            if result.is_ok() || !request.retry {
                return result;
            }
            return self.after_failure(result, device, allocator, request);
        }
        self.allocate_slowly(device, request)
    }

    /// Gets a block for `request.kind` on `device` only if the calling thread has one cached there, as most requests
    /// find in a steady state. [`Context::allocate`] does all that can be done.
    #[inline]
    pub fn allocate_cached(&self, device: Device, request: &Request) -> Option<Block> {
        self.inner.routes.place(device)?.get(request.kind)?.allocate_cached(request)
    }

    /// On devices without a place of their own, and where no allocator is registered yet.
    #[cold]
    fn allocate_slowly(&self, device: Device, request: &Request) -> Result<Block> {
        let routes = self.device(device, request.kind)?;
        let Some(allocator) = routes.get(request.kind) else {
            request.kind.check_on(device)?;
            return Err(Error::NoAllocator { device, kind: request.kind });
        };
        self.after_failure(allocator.allocate(request), device, allocator, request)
    }

    #[cold]
    fn after_failure(
        &self,
        result: Result<Block>,
        device: Device,
        allocator: &AllocatorRef,
        request: &Request,
    ) -> Result<Block> {
        match result {
            Err(Error::OutOfMemory(report)) if request.retry => {
                let routes = self.device(device, request.kind)?;
                self.climb(&routes, allocator, request, report, &|| allocator.allocate(request))
            }
            result => result,
        }
    }

    /// A device's routes, with its default allocator if that can be had. The kind is for the error.
    #[inline]
    fn device(&self, device: Device, kind: MemoryKind) -> Result<Found<'_>> {
        match self.inner.routes.get(device) {
            Some(routes) if !device.is_cpu() || routes.registered(MemoryKind::Default).is_some() => {
                Ok(routes)
            }
            _ => self.make_device(device, kind),
        }
    }

    #[cold]
    fn make_device(&self, device: Device, kind: MemoryKind) -> Result<Found<'_>> {
        if !device.is_cpu() {
            kind.check_on(device)?;
            return Err(Error::NoAllocator { device, kind });
        }
        // Made before the lock is taken: a factory may use the context.
        let (default, pinned) = (self.inner.cpu.make()?, self.inner.cpu.make_pinned()?);
        let mut watches = Vec::new();
        let changing = self.changing();
        let routes = self.inner.routes.get_or_new(device);
        // The default kind last: it is what says that all is there.
        for (kind, allocator) in [(MemoryKind::HostPinned, pinned), (MemoryKind::Default, default)] {
            if routes.registered(kind).is_none() {
                watches.extend(self.register_locked(device, kind, allocator)?);
            }
        }
        drop(changing);
        deliver_all(&watches);
        Ok(routes)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.inner.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was handed out and is held on `device`, over all that is counted: the allocators that are or were registered,
    /// those that were passed for requests ([`Context::allocate_from`]), and memory from outside ([`Context::adopt`]), for
    /// which what lives is what is held. [`Context::memory_map`] tells them apart. The peak of a sum is not known from the
    /// parts: peaks here are sums of the allocators' peaks, an upper bound.
    #[must_use]
    pub fn stats(&self, device: Device) -> Stats {
        let mut sum = Stats::default();
        let Some(routes) = self.inner.routes.get(device) else { return sum };
        for (_, _, stats) in map::figures(&routes) {
            sum.totals.add(&stats.totals);
            sum.usage.reserved += stats.usage.reserved;
            sum.usage.peak_reserved += stats.usage.peak_reserved;
            sum.usage.regions += stats.usage.regions;
            sum.usage.deferred += stats.usage.deferred;
            sum.usage.metadata += stats.usage.metadata;
            sum.refused_frees += stats.refused_frees;
            sum.has_unpinned |= stats.has_unpinned;
        }
        sum
    }

    /// What the first allocator that knows says of its device.
    pub(crate) fn memory_of_allocators(&self, device: Device) -> Option<DeviceMemory> {
        use crate::Allocator as _;
        self.inner.routes.get(device)?.distinct().into_iter().find_map(|allocator| allocator.device_memory())
    }

    /// Devices that something was registered for, or counted on.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.inner.routes.devices()
    }

    /// Gives cached memory of every allocator that is or was registered on `device` back (T21). Returns the bytes.
    pub fn trim(&self, device: Device) -> u64 {
        use crate::Allocator as _;
        let Some(routes) = self.inner.routes.get(device) else { return 0 };
        routes.counted().into_iter().map(|allocator| allocator.trim(0)).sum()
    }

    /// Who is told, if anybody.
    #[must_use]
    pub fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.inner.observer.cloned()
    }

    /// Tells `observer` of everything that happens in the allocators registered here, now and later, and of memory from
    /// outside; see [`AllocatorRef::set_observer`]. Of allocators that were passed for requests too, unless they have an
    /// observer of their own.
    pub fn set_observer(&self, observer: Option<Arc<dyn Observer>>) {
        let changing = self.changing();
        let before = self.inner.observer.set(observer.clone());
        let mut watches = self.of_each(|allocator| allocator.put_observer(observer.clone()));
        let passed = self.all_passed();
        watches.extend(passed.iter().flat_map(|allocator| {
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
        // Any of them may be the last handle by now.
        drop(passed);
        deliver_all(&watches);
    }

    /// Puts an observer in the place of this one, where it is.
    pub(crate) fn replace_observer(&self, ours: &Arc<dyn Observer>, observer: Option<&Arc<dyn Observer>>) {
        let changing = self.changing();
        let is_ours = |now: Option<&Arc<dyn Observer>>| now.is_some_and(|now| is_same(now, ours));
        let before = self.inner.observer.set_if(observer.cloned(), is_ours);
        let mut watches = self.of_each(|allocator| allocator.put_in_place_of(ours, observer.cloned()));
        let passed = self.all_passed();
        watches
            .extend(passed.iter().flat_map(|allocator| allocator.put_in_place_of(ours, observer.cloned())));
        drop((changing, before));
        drop(passed);
        deliver_all(&watches);
    }

    /// What allocators on all devices give.
    pub(crate) fn of_each<T>(&self, give: impl Fn(&AllocatorRef) -> Vec<T>) -> Vec<T> {
        let mut given = Vec::new();
        for routes in self.devices().into_iter().filter_map(|device| self.inner.routes.get(device)) {
            given.extend(routes.counted().into_iter().flat_map(&give));
            given.extend(routes.outside.all().flat_map(|account| give(&account)));
        }
        given
    }

    /// Allocators that were passed for requests, on all devices. To be dropped with no lock held: what ends with a last
    /// handle may run anything.
    fn all_passed(&self) -> Vec<AllocatorRef> {
        let devices = self.devices().into_iter();
        let routes = devices.filter_map(|device| self.inner.routes.get(device));
        routes.flat_map(|routes| routes.passed.all()).filter_map(|weak| weak.upgrade()).collect()
    }

    /// The stream that new work on `device` goes to: this thread's choice, else the context's.
    #[must_use]
    pub fn stream(&self, device: Device) -> StreamId {
        scope::stream(self.id(), device).unwrap_or_else(|| {
            self.inner.routes.get(device).map_or(StreamId::DEFAULT, |routes| StreamId::new(routes.stream()))
        })
    }

    /// Sets the context's stream for `device`.
    pub fn set_stream(&self, device: Device, stream: StreamId) {
        self.inner.routes.get_or_new(device).set_stream(stream.get());
    }

    /// Runs `f` with another current stream for `device`, on this thread.
    pub fn on_stream<R>(&self, device: Device, stream: StreamId, f: impl FnOnce() -> R) -> R {
        scope::on_stream(self.id(), device, stream, f)
    }

    /// Runs `f` with this as the thread's current context.
    pub fn scope<R>(&self, f: impl FnOnce() -> R) -> R {
        scope::inside(self.clone(), f)
    }

    /// The thread's current context.
    #[must_use]
    pub fn current() -> Self {
        scope::with_current(Self::clone)
    }

    /// Runs `f` on the thread's current context, without a reference count.
    #[inline]
    pub fn with_current<R>(f: impl FnOnce(&Self) -> R) -> R {
        scope::with_current(f)
    }

    /// Makes this the process's default context. Can be done once, before anybody asked for it.
    ///
    /// # Errors
    ///
    /// [`Error::ContextAlreadySet`].
    pub fn set_process_default(self) -> Result<()> {
        scope::set_process_default(self).map_err(|_| Error::ContextAlreadySet)
    }

    fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
