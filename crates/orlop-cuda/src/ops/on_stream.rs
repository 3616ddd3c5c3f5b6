//! [`OnStream`]: copies and fills of runs of bytes, each a call of the driver.

use crate::device::{DeviceState, DriverScope};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_device::EventId;
use std::ptr::NonNull;

/// A stream of this device, and the driver for its calls.
pub(super) struct OnStream<'a> {
    pub(super) device: &'a DeviceState,
    pub(super) scope: &'a DriverScope<'a>,
    pub(super) handle: abi::Handle,
}

impl OnStream<'_> {
    /// Records an event in the stream.
    ///
    /// # Safety
    ///
    /// The stream exists during the call.
    pub(super) unsafe fn record(&self) -> Result<EventId, CudaError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.record(self.handle) }
    }

    /// Returns `true` if the driver knows an address as pinned host memory. Destinations are always kept.
    pub(super) fn is_pinned(&self, host: NonNull<u8>) -> bool {
        let mut kind = 0_i32;
        let (value, address) = (std::ptr::from_mut(&mut kind).cast(), host.as_ptr().addr() as u64);
        let driver = self.scope.driver();
        // SAFETY: it writes one number of four bytes; an address that the driver does not know is an error.
        let known = unsafe { call!(driver, cuPointerGetAttribute(value, abi::POINTER_MEMORY_TYPE, address)) };
        known.is_ok() && kind == abi::MEMORY_TYPE_HOST
    }

    /// # Safety
    ///
    /// `DeviceOps::copy`, on one device.
    pub(super) unsafe fn copy_within(&self, to: usize, from: usize, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (to as u64, from as u64);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// Copies between two devices; the driver does it through the host if neither can access the other.
    ///
    /// # Safety
    ///
    /// `DeviceOps::copy`, between memory of these two.
    pub(super) unsafe fn copy_peer(
        &self,
        (to, to_device): (usize, &DeviceState),
        (from, from_device): (usize, &DeviceState),
        bytes: usize,
    ) -> Result<(), CudaError> {
        let [to_context, from_context] = [to_device, from_device].map(DeviceState::context_handle);
        let (to, from, driver) = (to as u64, from as u64, self.scope.driver());
        // SAFETY: guaranteed by the caller; the contexts exist as long as their devices.
        let copied = unsafe {
            call!(driver, cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, self.handle))
        };
        Ok(copied?)
    }

    /// # Safety
    ///
    /// `DeviceOps::copy`, from pinned memory.
    pub(super) unsafe fn copy_in(&self, to: usize, from: NonNull<u8>, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (to as u64, from.as_ptr().cast());
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyHtoDAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// # Safety
    ///
    /// `DeviceOps::copy`, to pinned memory.
    pub(super) unsafe fn copy_out(
        &self,
        to: NonNull<u8>,
        from: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let (to, from) = (to.as_ptr().cast(), from as u64);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyDtoHAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// Fills memory with a pattern of one, two or four bytes, at an address that it divides.
    ///
    /// # Safety
    ///
    /// `DeviceOps::fill`.
    pub(super) unsafe fn set(&self, to: usize, pattern: &[u8], count: usize) -> Result<(), CudaError> {
        let (driver, address, handle) = (self.scope.driver(), to as u64, self.handle);
        match *pattern {
            [byte] => {
                // SAFETY: guaranteed by the caller.
                unsafe { call!(driver, cuMemsetD8Async(address, byte, count, handle)) }
            }
            [a, b] => {
                let value = u16::from_ne_bytes([a, b]);
                // SAFETY: guaranteed by the caller.
                unsafe { call!(driver, cuMemsetD16Async(address, value, count, handle)) }
            }
            [a, b, c, d] => {
                let value = u32::from_ne_bytes([a, b, c, d]);
                // SAFETY: guaranteed by the caller.
                unsafe { call!(driver, cuMemsetD32Async(address, value, count, handle)) }
            }
            _ => return Ok(()),
        }?;
        Ok(())
    }

    /// Writes one pattern of any length by parts, and doubles it by copies.
    ///
    /// # Safety
    ///
    /// `DeviceOps::fill`.
    pub(super) unsafe fn fill_by_doubling(
        &self,
        to: usize,
        pattern: &[u8],
        total: usize,
    ) -> Result<(), CudaError> {
        let part =
            [4, 2, 1].into_iter().find(|&part| pattern.len().is_multiple_of(part) && to.is_multiple_of(part));
        let part = part.unwrap_or(1);
        for (number, bytes) in pattern.chunks_exact(part).enumerate() {
            // SAFETY: inside the first repetition.
            unsafe { self.set(to + number * part, bytes, 1) }?;
        }
        let mut filled = pattern.len();
        while filled < total {
            let bytes = filled.min(total - filled);
            // SAFETY: both parts are inside, and the second is behind the first.
            unsafe { self.copy_within(to + filled, to, bytes) }?;
            filled += bytes;
        }
        Ok(())
    }
}
