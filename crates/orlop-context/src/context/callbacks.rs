//! The callbacks that free memory when a kind needs some.

use super::ladder::{Pressure, PressureCallback, PressureId};
use super::routes::DeviceRoutes;
use super::{Context, Inner, map};
use orlop_alloc::Tag;
use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_core::{Device, MemoryKind};
use std::cell::Cell;
use std::fmt;
use std::sync::PoisonError;

/// Callbacks by kind.
#[derive(Default)]
pub(super) struct Callbacks {
    kinds: [Vec<(PressureId, PressureCallback)>; MemoryKind::COUNT],
    /// The number of callbacks ever registered.
    made: u64,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.iter().map(Vec::len)).finish()
    }
}

thread_local! {
    /// Whether this thread is inside a callback: its allocations there run no callbacks.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as inside a callback until dropped.
struct CallbackGuard;

impl CallbackGuard {
    /// Returns `None` if the thread is inside a callback already.
    fn enter() -> Option<Self> {
        // Not `then_some`: dropping a guard that is not needed would end the mark.
        if IN_CALLBACK.replace(true) { None } else { Some(Self) }
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        IN_CALLBACK.set(false);
    }
}

/// The live and reserved bytes of a device at one time.
#[derive(Debug, Clone, Copy)]
struct MemoryInUse {
    live: u64,
    reserved: u64,
}

impl MemoryInUse {
    /// Returns the bytes freed until `now`. Freed blocks count whether or not their memory was released.
    fn freed_until(self, now: Self) -> u64 {
        self.live.saturating_sub(now.live).max(self.reserved.saturating_sub(now.reserved))
    }

    /// Sums all allocators that are counted on a device.
    fn of(routes: &DeviceRoutes) -> Self {
        let mut held = Self { live: 0, reserved: 0 };
        for (_, _, stats) in map::stats_by_source(routes) {
            held.live = held.live.saturating_add(stats.live());
            held.reserved = held.reserved.saturating_add(stats.usage.reserved);
        }
        held
    }
}

impl Inner {
    /// Runs the kind's callbacks, in the order of their registration, until they freed enough or `is_needed`
    /// returns `false`. Returns the freed bytes by `measure`. Inside a callback it does nothing, because a
    /// callback may allocate and must not be called for that.
    fn run_callbacks(
        &self,
        pressure: &Pressure,
        measure: impl Fn() -> MemoryInUse,
        is_needed: &dyn Fn() -> bool,
    ) -> u64 {
        let Some(_guard) = CallbackGuard::enter() else { return 0 };
        let callbacks = {
            let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            callbacks.kinds[pressure.kind.index()].clone()
        };
        if callbacks.is_empty() {
            return 0;
        }
        let before = measure();
        let mut freed = 0;
        for (_, callback) in callbacks {
            // A panic of a callback must not disturb the request or the accounts, nor one of its destructor:
            // it may have been removed meanwhile, whether or not it is called.
            let is_called = freed < pressure.bytes && is_needed();
            let called = guarded(|| if is_called { callback(pressure) } else { 0 });
            let dropped = guarded(|| drop(callback));
            if called.is_none() || dropped.is_none() {
                trace_guarded(|| tracing::error!(kind = %pressure.kind, "a pressure callback panicked"));
            }
            if is_called {
                freed = before.freed_until(measure());
            }
        }
        freed
    }

    /// Runs the kind's callbacks because a budget was exceeded by `over` bytes. Returns the bytes of budget
    /// that this freed.
    pub(super) fn run_callbacks_for_budget(
        &self,
        routes: &DeviceRoutes,
        device: Device,
        kind: MemoryKind,
        tag: Tag,
        over: u64,
        is_needed: &dyn Fn() -> bool,
    ) -> u64 {
        let live = || routes.accounts().map_or(0, |accounts| accounts.status(kind).live);
        let measure = || MemoryInUse { live: live(), reserved: 0 };
        self.run_callbacks(&Pressure { device, kind, tag, bytes: over }, measure, is_needed)
    }

    /// Runs the kind's callbacks because the backing or a limit of an allocator has no room for `bytes`
    /// bytes. Returns the bytes that this freed on the device.
    pub(super) fn run_callbacks_for_memory(
        &self,
        routes: &DeviceRoutes,
        pressure: &Pressure,
        is_needed: &dyn Fn() -> bool,
    ) -> u64 {
        self.run_callbacks(pressure, || MemoryInUse::of(routes), is_needed)
    }
}

/// A callback of a context that is removed when this is dropped.
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_context::{Budget, Context, PressureGuard};
/// use orlop_core::{Device, MemoryKind};
/// use std::sync::{Arc, Mutex};
///
/// let (context, kind) = (Context::new(), MemoryKind::KvCache);
/// context.set_budget(Device::CPU, kind, Budget::hard(64 << 10).strict())?;
/// let request = Request::new(48 << 10).kind(kind);
/// let cache = Arc::new(Mutex::new(vec![context.allocate(Device::CPU, &request)?]));
/// let evicted = Arc::clone(&cache);
/// let guard = PressureGuard::on(&context, kind, Arc::new(move |_| {
///     evicted.lock().map_or(0, |mut cache| cache.drain(..).map(|block| block.capacity() as u64).sum())
/// }));
/// let block = context.allocate(Device::CPU, &request)?;
/// drop(guard);
/// assert!(context.allocate(Device::CPU, &request).is_err(), "nothing evicts any more");
/// # drop(block);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping this removes the callback"]
pub struct PressureGuard {
    context: Context,
    id: PressureId,
}

impl PressureGuard {
    /// Registers a callback: see [`Context::on_pressure`]. The guard keeps the context alive.
    pub fn on(context: &Context, kind: MemoryKind, callback: PressureCallback) -> Self {
        Self { id: context.on_pressure(kind, callback), context: context.clone() }
    }
}

impl Drop for PressureGuard {
    fn drop(&mut self) {
        let _ = self.context.remove_on_pressure(self.id);
    }
}

impl Context {
    /// Registers a callback that frees memory when `kind` needs some: see [`Pressure`]. It stays until
    /// [`Context::remove_on_pressure`] removes it by the id, or the context is dropped; a [`PressureGuard`]
    /// removes it when it is dropped.
    pub fn on_pressure(&self, kind: MemoryKind, callback: PressureCallback) -> PressureId {
        let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.made += 1;
        let id = PressureId(callbacks.made);
        callbacks.kinds[kind.index()].push((id, callback));
        id
    }

    /// Removes a callback. Returns `true` if it was registered. A request that is on the ladder at this
    /// moment may still call it.
    pub fn remove_on_pressure(&self, id: PressureId) -> bool {
        let removed = {
            let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = callbacks.kinds.iter_mut();
            all.find_map(|kind| {
                let index = kind.iter().position(|&(known, _)| known == id)?;
                Some(kind.remove(index))
            })
        };
        // Dropped here, without the lock: its destructor may run arbitrary code.
        removed.is_some()
    }
}
