//! What a device can do with memory: copy, fill, zero. The tensor layer reaches devices through this trait
//! and never sees a backend.

mod device_memory;

pub use self::device_memory::{DeviceMemory, device_memory};

use crate::Result;
use orlop_core::{Device, StreamId};
use std::fmt::Debug;
use std::ptr::NonNull;

/// An address and where it is.
#[derive(Debug, Clone, Copy)]
pub struct DevicePtr {
    /// The address.
    pub ptr: NonNull<u8>,
    /// Its device.
    pub device: Device,
}

/// Memory operations of a device. On a stream they are ordered with the stream's other work and may return
/// before they are done; on the CPU they are done when they return.
///
/// # Safety
///
/// An implementation reads and writes exactly the bytes it is told to.
pub unsafe trait DeviceOps: Debug + Send + Sync {
    /// Copies `bytes` from one place to another. At least one of them is on this device; operations of a
    /// device other than the CPU can also copy between it and the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::NoCopyPath`](crate::Error::NoCopyPath) between devices it does not know; the backend's own.
    ///
    /// # Safety
    ///
    /// Both ranges are valid until the stream has done the copy, do not overlap, and nothing that is not
    /// ordered with the stream writes either or reads the destination meanwhile.
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()>;

    /// Writes `pattern` over and over: `count` times, one after the other.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Safety
    ///
    /// `to .. to + pattern.len() * count` is valid and ours until the stream has done it.
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

    /// Waits until everything given to `stream` is done.
    ///
    /// # Errors
    ///
    /// The backend's own, among them errors of earlier work.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// How much memory the device has and how much of it is free (CUDA: `cuMemGetInfo`). `None` where that is not known.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// The processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostOps;

// SAFETY: plain memory operations over the given ranges.
unsafe impl DeviceOps for HostOps {
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, _: StreamId) -> Result<()> {
        if !to.device.is_cpu() || !from.device.is_cpu() {
            return Err(crate::Error::NoCopyPath { from: from.device, to: to.device });
        }
        // SAFETY: both are host memory, valid and disjoint by the caller's promise.
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: NonNull<u8>, pattern: &[u8], count: usize, _: StreamId) -> Result<()> {
        if let [byte] = *pattern {
            // SAFETY: valid and ours for `count` bytes.
            unsafe { to.write_bytes(byte, count) };
            return Ok(());
        }
        let total = pattern.len().saturating_mul(count);
        // SAFETY: valid and ours for `total` bytes by the caller's promise; initialised, being a block's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), total) };
        if !pattern.is_empty() {
            for piece in bytes.chunks_exact_mut(pattern.len()) {
                piece.copy_from_slice(pattern);
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
