//! The backing as an engine calls it: user code, called with the engine locked and in the middle of a change.
//!
//! A panic ends at the call and is an error. Once the device is lost the backing is not called again, except
//! to forget events: every call returns the failure that lost it.

use crate::backing::{BackingError, CallFailure, DeviceBacking, EventId};
use orlop_alloc::AllocatorRef;
use orlop_alloc::engine_support::{EngineScope, guarded, trace_guarded};
use orlop_core::{Device, StreamId};
use std::fmt;
use std::sync::OnceLock;

/// A backing whose panics are errors. Properties that cannot change are read once.
pub(crate) struct GuardedDevice<B> {
    inner: B,
    granularity: Option<usize>,
    memory: u64,
    device: Device,
    /// The failure by which the device was lost.
    loss: OnceLock<CallFailure>,
}

impl<B: DeviceBacking> GuardedDevice<B> {
    /// Wraps a backing. These calls are not guarded: there is no memory yet.
    pub(crate) fn new(inner: B) -> Self {
        let (granularity, memory, device) = (inner.page_granularity(), inner.memory(), inner.device());
        Self { inner, granularity, memory, device, loss: OnceLock::new() }
    }

    pub(crate) fn inner(&self) -> &B {
        &self.inner
    }

    pub(crate) fn page_granularity(&self) -> Option<usize> {
        self.granularity
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Returns the failure by which the device was lost.
    #[inline]
    pub(crate) fn loss(&self) -> Option<CallFailure> {
        self.loss.get().copied()
    }

    /// Calls the backing, unless the device is lost.
    fn call<R>(
        &self,
        name: &'static str,
        call: impl FnOnce(&B) -> Result<R, BackingError>,
    ) -> Result<R, CallFailure> {
        if let Some(loss) = self.loss() {
            return Err(loss);
        }
        let _inside = EngineScope::enter();
        let result = guarded(|| call(&self.inner)).unwrap_or(Err(BackingError::Panicked));
        result.map_err(|error| self.failed(CallFailure { call: name, error }))
    }

    #[cold]
    fn failed(&self, failure: CallFailure) -> CallFailure {
        let CallFailure { call, error } = failure;
        if !error.is_answer() && error != BackingError::Capturing {
            trace_guarded(|| {
                tracing::error!(backing = self.inner.name(), call, %error, "a call of the device failed");
            });
        }
        // Threads that lose the device at the same time report the first failure.
        if failure.is_loss() { *self.loss.get_or_init(|| failure) } else { failure }
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<usize, CallFailure> {
        self.call("allocate", |inner| inner.allocate(bytes))
    }

    /// # Safety
    ///
    /// [`DeviceBacking::release`].
    pub(crate) unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("release", |inner| unsafe { inner.release(address, bytes) })
    }

    pub(crate) fn reserve_addresses(&self, bytes: usize) -> Result<usize, CallFailure> {
        self.call("reserve_addresses", |inner| inner.reserve_addresses(bytes))
    }

    /// # Safety
    ///
    /// [`DeviceBacking::release_addresses`].
    pub(crate) unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("release_addresses", |inner| unsafe { inner.release_addresses(address, bytes) })
    }

    /// # Safety
    ///
    /// [`DeviceBacking::map`].
    pub(crate) unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("map", |inner| unsafe { inner.map(address, bytes, page) })
    }

    /// # Safety
    ///
    /// [`DeviceBacking::unmap`].
    pub(crate) unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("unmap", |inner| unsafe { inner.unmap(address, bytes, page) })
    }

    /// # Safety
    ///
    /// [`DeviceBacking::remap`].
    pub(crate) unsafe fn remap(
        &self,
        from: usize,
        to: usize,
        bytes: usize,
        page: usize,
    ) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("remap", |inner| unsafe { inner.remap(from, to, bytes, page) })
    }

    /// # Safety
    ///
    /// [`DeviceBacking::zero`].
    pub(crate) unsafe fn zero(
        &self,
        address: usize,
        bytes: usize,
        stream: StreamId,
    ) -> Result<(), CallFailure> {
        // SAFETY: guaranteed by the caller.
        self.call("zero", |inner| unsafe { inner.zero(address, bytes, stream) })
    }

    pub(crate) fn record(&self, stream: StreamId) -> Result<EventId, CallFailure> {
        self.call("record", |inner| inner.record(stream))
    }

    pub(crate) fn query(&self, event: EventId) -> Result<bool, CallFailure> {
        self.call("query", |inner| inner.query(event))
    }

    /// Waits for an event. If that fails, the event still exists.
    pub(crate) fn synchronize(&self, event: EventId) -> Result<(), CallFailure> {
        self.call("synchronize", |inner| inner.synchronize(event))
    }

    /// Makes a stream wait for an event, on the device. If that fails, the event still exists.
    pub(crate) fn wait(&self, stream: StreamId, event: EventId) -> Result<(), CallFailure> {
        self.call("wait", |inner| inner.wait(stream, event))
    }

    pub(crate) fn forget(&self, event: EventId) {
        let _inside = EngineScope::enter();
        if guarded(|| self.inner.forget(event)).is_none() {
            self.failed(CallFailure { call: "forget", error: BackingError::Panicked });
        }
    }

    /// Returns `true` if a stream is gone and its work complete.
    pub(crate) fn has_ended(&self, stream: StreamId) -> bool {
        self.call("has_ended", |inner| Ok(inner.has_ended(stream))).unwrap_or(false)
    }

    /// Returns `true` if a stream captures, or if that is not known.
    pub(crate) fn is_capturing(&self, stream: StreamId) -> bool {
        self.call("is_capturing", |inner| Ok(inner.is_capturing(stream))).unwrap_or(true)
    }

    /// Returns `true` if a stream is the device's.
    pub(crate) fn knows_stream(&self, stream: StreamId) -> bool {
        self.call("knows_stream", |inner| Ok(inner.knows_stream(stream))).unwrap_or(true)
    }

    /// Waits, on the host, for all work that a stream was given so far. If that fails it may still run.
    pub(crate) fn finish(&self, stream: StreamId) -> Result<(), CallFailure> {
        let event = self.record(stream)?;
        self.synchronize(event).inspect_err(|_| self.forget(event))
    }

    /// Makes a stream wait, on the device, for all work that another was given so far.
    pub(crate) fn wait_for(&self, stream: StreamId, other: StreamId) -> Result<(), CallFailure> {
        let event = self.record(other)?;
        self.wait(stream, event).inspect_err(|_| self.forget(event))
    }

    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.call("free_memory", |inner| Ok(inner.free_memory())).ok().flatten()
    }

    pub(crate) fn on_shared(&self, allocator: &AllocatorRef) {
        let _noted = self.call("on_shared", |inner| {
            inner.on_shared(allocator);
            Ok(())
        });
    }

    pub(crate) fn neighbours(&self) -> Vec<AllocatorRef> {
        self.call("neighbours", |inner| Ok(inner.neighbours())).unwrap_or_default()
    }
}

impl<B: fmt::Debug> fmt::Debug for GuardedDevice<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
