//! The backing as an engine calls it: user code, called with the engine locked and in the middle of a change.
//!
//! A panic ends at the call. An allocation that panics counts as refused; a release that panics counts as
//! done; a stream that could not be waited for counts as running, and the memory that it may use stays
//! reserved.

use crate::backing::{DeviceBacking, EventId};
use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_core::{Device, StreamId};
use std::fmt;

/// A backing whose panics end at the call. Properties that cannot change are read once.
pub(crate) struct GuardedDevice<B> {
    inner: B,
    has_pages: bool,
    memory: u64,
    device: Device,
}

impl<B: DeviceBacking> GuardedDevice<B> {
    /// Wraps a backing. These calls are not guarded: there is no memory yet.
    pub(crate) fn new(inner: B) -> Self {
        let (has_pages, memory, device) = (inner.has_pages(), inner.memory(), inner.device());
        Self { inner, has_pages, memory, device }
    }

    pub(crate) fn inner(&self) -> &B {
        &self.inner
    }

    pub(crate) fn has_pages(&self) -> bool {
        self.has_pages
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Calls the backing. `None` if it panicked.
    fn call<R>(&self, what: &'static str, call: impl FnOnce(&B) -> R) -> Option<R> {
        let result = guarded(|| call(&self.inner));
        if result.is_none() {
            self.report(what);
        }
        result
    }

    #[cold]
    fn report(&self, what: &'static str) {
        trace_guarded(|| tracing::error!(backing = self.inner.name(), what, "the device's backing panicked"));
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Option<usize> {
        self.call("allocate", |inner| inner.allocate(bytes)).flatten()
    }

    /// # Safety
    ///
    /// [`DeviceBacking::release`].
    pub(crate) unsafe fn release(&self, address: usize, bytes: usize) {
        // SAFETY: guaranteed by the caller.
        self.call("release", |inner| unsafe { inner.release(address, bytes) });
    }

    pub(crate) fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        self.call("reserve_addresses", |inner| inner.reserve_addresses(bytes)).flatten()
    }

    /// # Safety
    ///
    /// [`DeviceBacking::release_addresses`].
    pub(crate) unsafe fn release_addresses(&self, address: usize, bytes: usize) {
        // SAFETY: guaranteed by the caller.
        self.call("release_addresses", |inner| unsafe { inner.release_addresses(address, bytes) });
    }

    /// # Safety
    ///
    /// [`DeviceBacking::map`].
    pub(crate) unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        self.call("map", |inner| unsafe { inner.map(address, bytes, page) }).unwrap_or(false)
    }

    /// # Safety
    ///
    /// [`DeviceBacking::unmap`].
    pub(crate) unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) {
        // SAFETY: guaranteed by the caller.
        self.call("unmap", |inner| unsafe { inner.unmap(address, bytes, page) });
    }

    /// # Safety
    ///
    /// [`DeviceBacking::remap`].
    pub(crate) unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        self.call("remap", |inner| unsafe { inner.remap(from, to, bytes, page) }).unwrap_or(false)
    }

    /// # Safety
    ///
    /// [`DeviceBacking::zero`].
    pub(crate) unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> bool {
        // SAFETY: guaranteed by the caller.
        self.call("zero", |inner| unsafe { inner.zero(address, bytes, stream) }).unwrap_or(false)
    }

    /// Records an event in a stream. `None` if it panicked.
    pub(crate) fn record(&self, stream: StreamId) -> Option<EventId> {
        self.call("record", |inner| inner.record(stream))
    }

    pub(crate) fn is_done(&self, event: EventId) -> bool {
        self.call("is_done", |inner| inner.is_done(event)).unwrap_or(false)
    }

    /// Waits for an event. Returns `false` if that panicked; the event still exists.
    pub(crate) fn synchronize(&self, event: EventId) -> bool {
        self.call("synchronize", |inner| inner.synchronize(event)).is_some()
    }

    pub(crate) fn forget(&self, event: EventId) {
        self.call("forget", |inner| inner.forget(event));
    }

    /// Waits, on the host, for all work that a stream was given so far. Returns `false` if it may still run.
    #[must_use]
    pub(crate) fn finish(&self, stream: StreamId) -> bool {
        let Some(event) = self.record(stream) else { return false };
        let finished = self.synchronize(event);
        if !finished {
            self.forget(event);
        }
        finished
    }

    /// Makes a stream wait, on the device, for all work that another was given so far. Returns `false` if it
    /// does not.
    #[must_use]
    pub(crate) fn wait_for(&self, stream: StreamId, other: StreamId) -> bool {
        let Some(event) = self.record(other) else { return false };
        let waits = self.call("wait", |inner| inner.wait(stream, event)).is_some();
        if !waits {
            self.forget(event);
        }
        waits
    }

    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.call("free_memory", DeviceBacking::free_memory).flatten()
    }
}

impl<B: fmt::Debug> fmt::Debug for GuardedDevice<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
