//! Pressure: what frees memory outside of an allocator before one of its requests fails.
//!
//! First the caches of the allocators that share the device's memory, one by one in their order, and the
//! request is tried again after each that gave memory back. Then, once, the callbacks; what they freed can be
//! in the caches of those allocators, which are trimmed again.

use super::DeviceAllocator;
use crate::backing::DeviceBacking;
use crate::error::DeviceError;
use orlop_alloc::engine_support::{CacheTrims, EngineScope, guarded, trace_guarded};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_sync::Mutex;
use std::sync::Arc;
use std::{fmt, ptr};

/// A pressure callback.
type Callback = dyn Fn() -> bool + Send + Sync;

/// The pressure callbacks of an allocator.
#[derive(Default)]
pub(super) struct Callbacks(Mutex<Vec<Arc<Callback>>>);

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

/// What was tried for one request.
#[derive(Default)]
pub(super) struct Pressure {
    trims: CacheTrims,
    has_called_back: bool,
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// Registers a callback that runs before a request fails. It returns `true` if it freed memory; the
    /// request is then tried again.
    ///
    /// It may free blocks of this allocator or of others: no lock is held. Requests that it makes can call
    /// it again. It does not run for a request that is made inside an engine (by a visitor of its memory, in
    /// [`with_engine`](Self::with_engine)), where waiting for another allocator could deadlock.
    ///
    /// A panic counts as `false` and is traced. The callback exists as long as the allocator, which exists as
    /// long as its blocks: refer to blocks of this allocator by a [`Weak`](std::sync::Weak).
    pub fn on_pressure(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        self.callbacks.0.lock().push(Arc::new(callback));
    }

    /// Frees memory elsewhere for a request that failed. Returns `true` if it is to be tried again. No lock
    /// is held.
    #[cold]
    pub(super) fn relieve(&self, pressure: &mut Pressure, error: &DeviceError) -> bool {
        let &DeviceError::OutOfMemory { rounded, .. } = error else { return false };
        // What others give back does not count below a limit of this allocator, nor beyond the device.
        let may_fit = rounded <= self.backing.memory() && !self.is_limited(error);
        if may_fit && pressure.trims.trim_next(|| self.neighbours()) {
            return true;
        }
        let has_freed = !std::mem::replace(&mut pressure.has_called_back, true) && self.run_callbacks();
        if has_freed {
            // What was freed can be in the cache of another allocator.
            pressure.trims.restart();
        }
        has_freed
    }

    /// Returns the allocators that share the device's memory, without this one, whose ladder has ended.
    fn neighbours(&self) -> Vec<AllocatorRef> {
        let mut neighbours = self.backing.neighbours();
        neighbours.retain(|neighbour| {
            let engine: *const dyn Allocator = &raw const **neighbour;
            !ptr::addr_eq(engine, self)
        });
        neighbours
    }

    /// Returns `true` if a request failed by the limit that is set. Without one, the engine's is all memory
    /// of the device.
    pub(super) fn is_limited(&self, error: &DeviceError) -> bool {
        let &DeviceError::OutOfMemory { rounded, reserved, limit, .. } = error else { return false };
        limit < self.backing.memory() && reserved.saturating_add(rounded) > limit
    }

    /// Runs all pressure callbacks. Returns `true` if one of them freed memory. Inside an engine none runs.
    fn run_callbacks(&self) -> bool {
        if EngineScope::is_inside() {
            return false;
        }
        let callbacks = self.callbacks.0.lock().clone();
        // All of them: what one frees may not be enough.
        let call = |callback: &Arc<Callback>| {
            let freed = guarded(|| callback());
            if freed.is_none() {
                trace_guarded(|| tracing::error!(allocator = &*self.name, "a pressure callback panicked"));
            }
            freed.unwrap_or(false)
        };
        callbacks.iter().filter(|callback| call(callback)).count() > 0
    }
}
