//! A mock device that the crate does not know, whose memory only its operations may access.

use orlop_alloc::engine::Direct;
use orlop_alloc::{
    Allocator,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_testkit::fake_device::FakeDeviceBacking;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const FAR: Device = FakeDeviceBacking::DEVICE;

/// The device's operations, which are counted.
#[derive(Debug, Default)]
pub(crate) struct MockDeviceOps(pub(crate) AtomicUsize);

// SAFETY: plain memory operations over the given ranges.
unsafe impl DeviceOps for MockDeviceOps {
    fn device(&self) -> Device {
        FAR
    }

    unsafe fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        count: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        for at in 0..count {
            // SAFETY: inside the range.
            let place = unsafe { to.add(at * pattern.len()) };
            // SAFETY: as above.
            unsafe { place.ptr.copy_from_nonoverlapping(NonNull::from(pattern).cast(), pattern.len()) };
        }
        Ok(())
    }

    fn synchronize(&self, _: StreamId) -> orlop_alloc::Result<()> {
        Ok(())
    }
}

/// Runs a test in a context with the device.
pub(crate) fn with_device(test: impl FnOnce(&MockDeviceOps)) {
    let (context, ops) = (Context::new(), Arc::new(MockDeviceOps::default()));
    context
        .register(FAR, MemoryKind::Default, Direct::new(FakeDeviceBacking::new()).into_ref())
        .expect("the first registration");
    context.register_ops(FAR, Arc::clone(&ops) as Arc<dyn DeviceOps>).expect("its operations");
    context.scope(|| test(&ops));
}
