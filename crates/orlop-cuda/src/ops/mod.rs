//! [`CudaOps`]: copies and fills on streams.
//!
//! | module | what it holds |
//! |---|---|
//! | `staging` | copies of pageable host memory, through pinned buffers |
//! | `strided` | strided copies, as copies of rows and planes |

mod staging;
mod strided;

use self::staging::StagingBuffers;
use crate::device::{self, CudaDevice, DeviceState, DriverScope, StreamTarget, resolve};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::{DeviceMemory, DeviceOps, DevicePtr, Error, Result, StridedLoops};
use orlop_core::{DType, StreamId};
use orlop_device::EventId;
use std::ptr::NonNull;

/// The memory operations of a CUDA device: copies to, from and on the device, fills, zeros.
///
/// Operations on the host's stream ([`StreamId::HOST`]) run on the device's default stream. Copies of
/// pageable host memory go through two pinned buffers: a source has been read, and a destination written,
/// when the call returns. All other operations return before they are done.
///
/// Copies between two CUDA devices are refused ([`Error::NoCopyPath`]), and casts are left to the host
/// ([`Error::CannotCast`]).
#[derive(Debug)]
pub struct CudaOps {
    device: CudaDevice,
    staging: StagingBuffers,
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyPath {
    Within,
    /// From the host, pinned or not.
    In {
        pinned: bool,
    },
    /// To the host, pinned or not.
    Out {
        pinned: bool,
    },
}

/// A stream of this device, and the driver for its calls.
struct OnStream<'a> {
    device: &'a DeviceState,
    scope: &'a DriverScope<'a>,
    handle: abi::Handle,
}

impl CudaOps {
    /// Creates the operations of a device.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        Self { device: device.clone(), staging: StagingBuffers::new(device) }
    }

    /// The host's stream stands for the device's default stream.
    fn stream(&self, stream: StreamId) -> StreamId {
        if stream == StreamId::HOST { self.device.default_stream() } else { stream }
    }

    /// Calls `work` with a stream of this device.
    fn on<R>(&self, stream: StreamId, work: impl FnOnce(OnStream<'_>) -> Result<R, CudaError>) -> Result<R> {
        let stream = self.stream(stream);
        let StreamTarget::Stream { device, handle, _entry } = resolve(stream)? else {
            return Err(CudaError::UnknownStream { stream }.into());
        };
        let scope = device.enter()?;
        Ok(work(OnStream { device: &device, scope: &scope, handle })?)
    }

    fn path(&self, to: DevicePtr, from: DevicePtr) -> Result<CopyPath> {
        let here = self.device.device();
        match (to.device == here, from.device == here) {
            (true, true) => Ok(CopyPath::Within),
            (true, false) if from.device.is_cpu() => Ok(CopyPath::In { pinned: from.is_kept }),
            (false, true) if to.device.is_cpu() => Ok(CopyPath::Out { pinned: to.is_kept }),
            _ => Err(Error::NoCopyPath { from: from.device, to: to.device }),
        }
    }
}

impl OnStream<'_> {
    /// Records an event in the stream.
    ///
    /// # Safety
    ///
    /// The stream exists during the call.
    unsafe fn record(&self) -> Result<EventId, CudaError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.record(self.handle) }
    }

    /// Returns `true` if the driver knows an address as pinned host memory. Destinations are always kept.
    fn is_pinned(&self, host: NonNull<u8>) -> bool {
        let mut kind = 0_i32;
        let (value, address) = (std::ptr::from_mut(&mut kind).cast(), host.as_ptr().addr() as u64);
        let driver = self.scope.driver();
        // SAFETY: it writes one number of four bytes; an address that the driver does not know is an error.
        let known = unsafe { call!(driver, cuPointerGetAttribute(value, abi::POINTER_MEMORY_TYPE, address)) };
        known.is_ok() && kind == abi::MEMORY_TYPE_HOST
    }

    /// # Safety
    ///
    /// [`DeviceOps::copy`], on one device.
    unsafe fn copy_within(&self, to: usize, from: usize, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (to as u64, from as u64);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// # Safety
    ///
    /// [`DeviceOps::copy`], from pinned memory.
    unsafe fn copy_in(&self, to: usize, from: NonNull<u8>, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (to as u64, from.as_ptr().cast());
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyHtoDAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// # Safety
    ///
    /// [`DeviceOps::copy`], to pinned memory.
    unsafe fn copy_out(&self, to: NonNull<u8>, from: usize, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (to.as_ptr().cast(), from as u64);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpyDtoHAsync_v2(to, from, bytes, self.handle)) }?)
    }

    /// Fills memory with a pattern of one, two or four bytes, at an address that it divides.
    ///
    /// # Safety
    ///
    /// [`DeviceOps::fill`].
    unsafe fn set(&self, to: usize, pattern: &[u8], count: usize) -> Result<(), CudaError> {
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
    /// [`DeviceOps::fill`].
    unsafe fn fill_by_doubling(&self, to: usize, pattern: &[u8], total: usize) -> Result<(), CudaError> {
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

/// Returns the shortest pattern that repeats as this one does.
fn shortest(pattern: &[u8]) -> &[u8] {
    let mut pattern = pattern;
    while pattern.len().is_multiple_of(2) {
        let (first, second) = pattern.split_at(pattern.len() / 2);
        if first.is_empty() || first != second {
            break;
        }
        pattern = first;
    }
    pattern
}

// SAFETY: 1. the driver's calls access the bytes that they name, in the order of the stream. 2. a pageable
// source is read before `copy` returns (`staging`), and a pattern is passed by value. 3. the driver waits for
// the stream.
unsafe impl DeviceOps for CudaOps {
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
        let path = self.path(to, from)?;
        if bytes == 0 {
            return Ok(());
        }
        let (to_address, from_address) = (to.ptr.as_ptr().addr(), from.ptr.as_ptr().addr());
        self.on(stream, |on| match path {
            // SAFETY: guaranteed by the caller.
            CopyPath::Within => unsafe { on.copy_within(to_address, from_address, bytes) },
            // SAFETY: as above.
            CopyPath::In { pinned: true } => unsafe { on.copy_in(to_address, from.ptr, bytes) },
            // SAFETY: as above.
            CopyPath::Out { pinned: true } => unsafe { on.copy_out(to.ptr, from_address, bytes) },
            // SAFETY: as above.
            CopyPath::In { pinned: false } => unsafe {
                self.staging.copy_in(&on, to_address, from.ptr, bytes)
            },
            // SAFETY: as above.
            CopyPath::Out { pinned: false } if on.is_pinned(to.ptr) => unsafe {
                on.copy_out(to.ptr, from_address, bytes)
            },
            // SAFETY: as above.
            CopyPath::Out { pinned: false } => unsafe {
                self.staging.copy_out(&on, to.ptr, from_address, bytes)
            },
        })
    }

    unsafe fn copy_strided(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        item: usize,
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        let path = self.path(to, from)?;
        if loops.steps() == 0 || item == 0 {
            return Ok(());
        }
        let (run, outer) = loops.with_run(item);
        if matches!(path, CopyPath::In { pinned: false } | CopyPath::Out { pinned: false }) {
            // Run by run through the buffers.
            return outer.try_for_each_part(0, |to_offset, from_offset, _| {
                // SAFETY: the elements of a step are inside (guaranteed by the caller).
                let to = unsafe { to.add(to_offset) };
                // SAFETY: as above.
                let from = unsafe { from.add(from_offset) };
                // SAFETY: a run of the elements (guaranteed by the caller).
                unsafe { self.copy(to, from, run, stream) }
            });
        }
        self.on(stream, |on| {
            outer.try_for_each_part(2, |to_offset, from_offset, inner| {
                // SAFETY: the elements of a step are inside (guaranteed by the caller).
                let to = unsafe { to.add(to_offset) };
                // SAFETY: as above.
                let from = unsafe { from.add(from_offset) };
                // SAFETY: guaranteed by the caller.
                unsafe { on.copy_planes(to, from, run, inner.dims()) }
            })
        })
    }

    unsafe fn cast(
        &self,
        to: (NonNull<u8>, DType),
        from: (NonNull<u8>, DType),
        _: StridedLoops<'_>,
        _: StreamId,
    ) -> Result<()> {
        Err(Error::CannotCast { from: from.1, to: to.1 })
    }

    unsafe fn fill(&self, to: NonNull<u8>, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
        let total = pattern.len().saturating_mul(count);
        if total == 0 {
            return Ok(());
        }
        let (address, pattern) = (to.as_ptr().addr(), shortest(pattern));
        self.on(stream, |on| {
            if pattern.len() <= 4 && pattern.len() != 3 && address.is_multiple_of(pattern.len()) {
                // SAFETY: guaranteed by the caller.
                return unsafe { on.set(address, pattern, total / pattern.len()) };
            }
            // SAFETY: guaranteed by the caller.
            unsafe { on.fill_by_doubling(address, pattern, total) }
        })
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        let (stream, earlier) = (self.stream(stream), self.stream(earlier));
        if stream != earlier {
            let event = device::record(earlier)?;
            device::wait(stream, event).inspect_err(|_| device::forget(event))?;
        }
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        match resolve(self.stream(stream))? {
            StreamTarget::Stream { device, handle, _entry } => {
                let scope = device.enter()?;
                // SAFETY: the target keeps the stream.
                unsafe { call!(scope.driver(), cuStreamSynchronize(handle)) }.map_err(CudaError::from)?;
            }
            StreamTarget::Ended(_) => {
                let event = device::record(stream)?;
                device::synchronize(event).inspect_err(|_| device::forget(event))?;
            }
            StreamTarget::Host => {}
        }
        Ok(())
    }

    fn memory(&self) -> Option<DeviceMemory> {
        self.device.memory().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_shortened() {
        assert_eq!(shortest(&[7; 16]), [7]);
        assert_eq!(shortest(&[1, 2, 1, 2]), [1, 2]);
        assert_eq!(shortest(&[1, 2, 3, 1, 2, 3]), [1, 2, 3]);
        assert_eq!(shortest(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(shortest(&[]), [0_u8; 0]);
    }
}
