//! A device that the crate knows nothing of: memory that only its operations may touch.

use orlop_alloc::backing::{Backing, Region, System};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Access, Context, DeviceOps, DevicePtr};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const FAR: Device = Device::custom(1, 0);

/// Host memory that says it is the device's.
#[derive(Debug)]
pub(crate) struct FarMemory(pub(crate) System);

// SAFETY: the system's regions.
unsafe impl Backing for FarMemory {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        self.0.reserve(bytes, align)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: the caller's promise.
        unsafe { self.0.release(region) };
    }

    fn access(&self) -> Access {
        Access::Device
    }

    fn device(&self) -> Device {
        FAR
    }

    fn name(&self) -> &str {
        "far"
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.zero(ptr, bytes) }
    }
}

/// Copies and fills it, and counts how often.
#[derive(Debug, Default)]
pub(crate) struct FarOps(pub(crate) AtomicUsize);

// SAFETY: plain memory operations over the given ranges.
unsafe impl DeviceOps for FarOps {
    unsafe fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(
        &self,
        to: NonNull<u8>,
        pattern: &[u8],
        count: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        for at in 0..count {
            // SAFETY: inside the range.
            let place = unsafe { to.add(at * pattern.len()) };
            // SAFETY: as above.
            unsafe { place.copy_from_nonoverlapping(NonNull::from(pattern).cast(), pattern.len()) };
        }
        Ok(())
    }

    fn synchronize(&self, _: StreamId) -> orlop_alloc::Result<()> {
        Ok(())
    }
}

/// Runs a test in a context that has the device.
pub(crate) fn with_device(test: impl FnOnce(&FarOps)) {
    let (context, ops) = (Context::new(), Arc::new(FarOps::default()));
    context
        .register(FAR, MemoryKind::Default, Direct::new(FarMemory(System::new())))
        .expect("the first registration");
    context.register_ops(FAR, Arc::clone(&ops) as Arc<dyn DeviceOps>);
    context.scope(|| test(&ops));
}
