//! Device operations: copy, fill and zero. The tensor layer reaches devices through this trait and never sees
//! a backend.

mod device_memory;

pub use self::device_memory::DeviceMemory;

use crate::Result;
use orlop_core::{Device, StreamId};
use std::fmt::Debug;
use std::ptr::NonNull;

/// An address and its device.
#[derive(Debug, Clone, Copy)]
pub struct DevicePtr {
    /// The address.
    pub ptr: NonNull<u8>,
    /// The device that the address is on.
    pub device: Device,
}

/// Memory operations of a device. On a stream they are ordered with the stream's other work and may return
/// before they are done; on the CPU they are done when they return.
///
/// # Safety
///
/// An implementation reads and writes only the bytes that its arguments name.
pub unsafe trait DeviceOps: Debug + Send + Sync {
    /// Copies `bytes` bytes. At least one of the addresses is on this device; operations of a device other
    /// than the CPU can also copy between it and the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::NoCopyPath`](crate::Error::NoCopyPath) if it cannot copy between these devices; the backend's
    /// own errors.
    ///
    /// # Safety
    ///
    /// Both ranges are valid until the stream has done the copy and do not overlap. Until then, work that is
    /// not ordered with the stream does not write to either of them or read the destination.
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()>;

    /// Fills memory with `count` consecutive repetitions of `pattern`.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Safety
    ///
    /// `to .. to + pattern.len() * count` is valid, and accessed only by this stream until it has done the
    /// fill.
    unsafe fn fill(&self, to: NonNull<u8>, pattern: &[u8], count: usize, stream: StreamId) -> Result<()>;

    /// Writes zeros.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Safety
    ///
    /// As for [`DeviceOps::fill`].
    unsafe fn zero(&self, to: NonNull<u8>, bytes: usize, stream: StreamId) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill(to, &[0], bytes, stream) }
    }

    /// Waits until all work submitted to `stream` is done.
    ///
    /// # Errors
    ///
    /// The backend's own, including errors of earlier work.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// Returns the size of the device's memory and how much is free (CUDA: `cuMemGetInfo`), or `None` if
    /// unknown.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// The operations of the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostOps;

// SAFETY: reads and writes the given ranges only.
unsafe impl DeviceOps for HostOps {
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, _: StreamId) -> Result<()> {
        if !to.device.is_cpu() || !from.device.is_cpu() {
            return Err(crate::Error::NoCopyPath { from: from.device, to: to.device });
        }
        // SAFETY: both are host memory, valid and disjoint (guaranteed by the caller).
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: NonNull<u8>, pattern: &[u8], count: usize, _: StreamId) -> Result<()> {
        if let [byte] = *pattern {
            // SAFETY: valid and accessed by this call only, for `count` bytes (guaranteed by the caller).
            unsafe { to.write_bytes(byte, count) };
            return Ok(());
        }
        let total = pattern.len().saturating_mul(count);
        // SAFETY: valid and accessed by this call only, for `total` bytes (guaranteed by the caller);
        // initialised, because it belongs to a host block.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), total) };
        if !pattern.is_empty() {
            for part in bytes.chunks_exact_mut(pattern.len()) {
                part.copy_from_slice(pattern);
            }
        }
        Ok(())
    }

    fn synchronize(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Option<DeviceMemory> {
        crate::host::system_memory::now()
    }
}
