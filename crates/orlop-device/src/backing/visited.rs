//! Visitors of a device's memory: callbacks for everything that an engine gains and gives back, for example
//! to register it with a network adapter.

use super::{BackingError, CaptureCount, DeviceBacking, EventId};
use orlop_alloc::backing::{Region, Visitor, Visitors};
use orlop_alloc::{Access, AllocatorRef};
use orlop_core::{Alignment, Device, StreamId};
use std::ptr::{self, NonNull};

/// A device that calls visitors: those of [`Visited`](orlop_alloc::backing::Visited), which a backing of the
/// host calls.
///
/// A region is visited when it is allocated and before it is released, pages when they are mapped and before
/// they are unmapped. Pages that move are released and reserved. Pages are visited in the pieces in which
/// they come and go. The node is unknown.
///
/// A visitor that panics on [`RegionChange::Reserved`] refuses the memory: the engine is told that there is
/// none, unless it is memory that moved.
///
/// [`RegionChange::Reserved`]: orlop_alloc::backing::RegionChange::Reserved
///
/// ```
/// use orlop_alloc::backing::{RegionChange, Visitor};
/// use orlop_alloc::{Allocator, Request};
/// use orlop_core::Device;
/// use orlop_device::{DeviceAllocator, NullDevice, Policy, VisitedDevice};
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
///
/// let registered = Arc::new(AtomicUsize::new(0));
/// let count = Arc::clone(&registered);
/// let visitor: Visitor = Arc::new(move |change, region, _| match change {
///     RegionChange::Reserved => _ = count.fetch_add(region.bytes, Ordering::Relaxed),
///     RegionChange::Released => _ = count.fetch_sub(region.bytes, Ordering::Relaxed),
/// });
/// let device = VisitedDevice::new(NullDevice::new(Device::cuda(0), 1 << 30), vec![visitor]);
/// let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
/// let block = allocator.allocate(&Request::new(1000))?;
/// assert_eq!(registered.load(Ordering::Relaxed), 2 << 20);
/// drop(block);
/// allocator.trim(0);
/// assert_eq!(registered.load(Ordering::Relaxed), 0);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct VisitedDevice<B> {
    inner: B,
    visitors: Visitors,
}

impl<B: DeviceBacking> VisitedDevice<B> {
    /// Wraps a device. Visitors are called in this order for what is reserved, and in reverse order for what
    /// is released.
    #[must_use]
    pub fn new(inner: B, visitors: Vec<Visitor>) -> Self {
        Self { inner, visitors: Visitors::new(visitors) }
    }

    /// Returns the device.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Calls all visitors for reserved memory. Returns `false` if one panicked; those before it have then
    /// been called for the release.
    fn visit_reserved(&self, address: usize, bytes: usize) -> bool {
        let is_accepted = |region| self.visitors.notify_reserved(&region, None, self.inner.name());
        region(address, bytes).is_none_or(is_accepted)
    }

    fn visit_released(&self, address: usize, bytes: usize) {
        if let Some(region) = region(address, bytes) {
            self.visitors.notify_released(&region, None, self.inner.name());
        }
    }

    /// Calls the visitors for memory that is released by `release`. What was not released is visited again.
    fn release_visited(
        &self,
        address: usize,
        bytes: usize,
        release: impl FnOnce(&B) -> Result<(), BackingError>,
    ) -> Result<(), BackingError> {
        self.visit_released(address, bytes);
        release(&self.inner).inspect_err(|error| {
            if error.had_no_effect() {
                self.visit_reserved(address, bytes);
            }
        })
    }
}

// SAFETY: memory, events and streams are those of the inner device, whose promises hold.
unsafe impl<B: DeviceBacking> DeviceBacking for VisitedDevice<B> {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let address = self.inner.allocate(bytes)?;
        if self.visit_reserved(address, bytes) {
            return Ok(address);
        }
        // SAFETY: allocated above and used nowhere.
        unsafe { self.inner.release(address, bytes) }?;
        Err(BackingError::OutOfMemory)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        self.release_visited(address, bytes, |inner| unsafe { inner.release(address, bytes) })
    }

    fn page_granularity(&self) -> Option<usize> {
        self.inner.page_granularity()
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        self.inner.reserve_addresses(bytes)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(address, bytes) }
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.map(address, bytes, page) }?;
        if self.visit_reserved(address, bytes) {
            return Ok(());
        }
        // SAFETY: mapped above and used nowhere.
        unsafe { self.inner.unmap(address, bytes, page) }?;
        Err(BackingError::OutOfMemory)
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        self.release_visited(address, bytes, |inner| unsafe { inner.unmap(address, bytes, page) })
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        self.visit_released(from, bytes);
        // SAFETY: guaranteed by the caller.
        let moved = unsafe { self.inner.remap(from, to, bytes, page) };
        // Pages whose move failed count as where they were.
        self.visit_reserved(if moved.is_ok() { to } else { from }, bytes);
        moved
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.zero(address, bytes, stream) }
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        self.inner.record(stream)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        self.inner.query(event)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.inner.synchronize(event)
    }

    fn forget(&self, event: EventId) {
        self.inner.forget(event);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.inner.wait(stream, event)
    }

    fn has_ended(&self, stream: StreamId) -> bool {
        self.inner.has_ended(stream)
    }

    fn is_capturing(&self, stream: StreamId) -> bool {
        self.inner.is_capturing(stream)
    }

    fn knows_stream(&self, stream: StreamId) -> bool {
        self.inner.knows_stream(stream)
    }

    fn capture_count(&self) -> Option<CaptureCount> {
        self.inner.capture_count()
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }

    fn free_memory(&self) -> Option<u64> {
        self.inner.free_memory()
    }

    fn on_shared(&self, allocator: &AllocatorRef) {
        self.inner.on_shared(allocator);
    }

    fn neighbours(&self) -> Vec<AllocatorRef> {
        self.inner.neighbours()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

fn region(address: usize, bytes: usize) -> Option<Region> {
    let ptr = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
    Some(Region { ptr, bytes, align: Alignment::ONE, zeroed: false })
}
