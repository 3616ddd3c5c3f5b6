//! Device operations: copies, fills and casts. The tensor layer reaches devices through this trait and never
//! sees a backend.
//!
//! # Asynchronous work
//!
//! Operations of a device are ordered by stream and may return before they are done. Who keeps the memory
//! until then is decided per side:
//!
//! - Device memory is kept by the caller. [`Block::acquire_for`] records the stream on a block, so that
//!   dropping it defers its reuse, and says if the allocator does not wait for streams; then the caller waits
//!   ([`DeviceOps::synchronize`]).
//! - A host source has been read when the call returns, so the caller may change or free it: the operations
//!   copy it elsewhere, or wait. If the caller keeps it, as it should keep pinned memory
//!   ([`DevicePtr::kept`]), it is read when the stream comes to it.
//! - A host destination has its bytes when [`DeviceOps::synchronize`] has returned for the stream, or
//!   [`StreamEvent::wait`] for an event that was recorded behind the copy. Nothing else has to be waited for.
//!
//! [`Block::acquire_for`]: crate::Block::acquire_for

mod host_ops;

pub use self::host_ops::HostOps;

use crate::{DeviceMemory, Error, Result, StridedLoops};
use orlop_core::{DType, Device, StreamId};
use std::fmt::Debug;
use std::ptr::NonNull;

/// An address and its device.
#[derive(Debug, Clone, Copy)]
pub struct DevicePtr {
    /// The address.
    pub ptr: NonNull<u8>,
    /// The device that the address is on.
    pub device: Device,
    /// For a source in host memory: true if the caller keeps it, unchanged, until the stream has done its
    /// work; false if only during the call. All other memory is kept until then.
    pub is_kept: bool,
}

impl DevicePtr {
    /// Describes an address on a device. A source in host memory is not kept after the call.
    #[must_use]
    pub const fn new(ptr: NonNull<u8>, device: Device) -> Self {
        Self { ptr, device, is_kept: false }
    }

    /// Describes host memory that the caller keeps until the stream has done its work.
    #[must_use]
    pub const fn kept(ptr: NonNull<u8>) -> Self {
        Self { ptr, device: Device::CPU, is_kept: true }
    }

    /// Returns the place `bytes` bytes further.
    ///
    /// # Safety
    ///
    /// It is inside the same block, or at its end.
    #[must_use]
    pub const unsafe fn add(self, bytes: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        Self { ptr: unsafe { self.ptr.add(bytes) }, ..self }
    }
}

/// A point in the work of a stream, recorded by [`DeviceOps::record_event`].
pub trait StreamEvent: Debug + Send + Sync {
    /// Waits until the work before the event is done.
    ///
    /// # Errors
    ///
    /// The backend's own, including errors of earlier work.
    fn wait(&self) -> Result<()>;
}

/// Memory operations of a device. On a stream they are ordered with the stream's other work and may return
/// before they are done; on the CPU they are done when they return.
///
/// A backend has to copy and fill runs of bytes. Strided operations are made of runs unless the backend does
/// better; casts are refused unless it has them.
///
/// # Safety
///
/// 1. An implementation reads and writes only the bytes that its arguments name, from the call until the
///    stream has done the work, also if the call fails or panics.
/// 2. It has read a host source that is not [kept](DevicePtr::is_kept), and `pattern`, when the call ends,
///    also by a panic.
/// 3. When [`DeviceOps::synchronize`] has returned `Ok`, all work submitted to the stream before is done, and
///    the host sees what it wrote.
/// 4. [`DeviceOps::device`] always returns the same device, and the operations can access all its memory that
///    is accessible at all. Safe functions compare it with the device of the memory, and nothing else.
/// 5. When [`DeviceOps::wait_for`] has returned `Ok`, the one stream waits for the other. If it cannot order
///    these two, of whatever device they are, that is an error.
/// 6. When [`StreamEvent::wait`] has returned `Ok`, all work submitted to the stream before the event was
///    recorded is done, and the host sees what it wrote.
pub unsafe trait DeviceOps: Debug + Send + Sync {
    /// Returns the device whose memory these operations access.
    fn device(&self) -> Device;

    /// Copies `bytes` bytes. At least one of the addresses is on this device; operations of a device other
    /// than the CPU can also copy between it and the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::NoCopyPath`] if it cannot copy between these devices; the backend's own errors.
    ///
    /// # Safety
    ///
    /// Both ranges are valid until the stream has done the copy and do not overlap; a host source that is not
    /// kept only until the call returns. Until then, work that is not ordered with the stream does not write
    /// to either of them or read the destination.
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()>;

    /// Copies an element of `item` bytes at every step of the loops. Both addresses are those of the first
    /// element. The default copies each run of adjacent elements with [`DeviceOps::copy`].
    ///
    /// # Errors
    ///
    /// Those of [`DeviceOps::copy`]. Some elements may have been copied.
    ///
    /// # Safety
    ///
    /// Those of [`DeviceOps::copy`], for the elements at all steps; no two elements of the destination
    /// overlap.
    unsafe fn copy_strided(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        item: usize,
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        let (run, outer) = loops.with_run(item);
        outer.try_for_each_part(0, |to_offset, from_offset, _| {
            // SAFETY: the elements of a step are inside (guaranteed by the caller).
            let to = unsafe { to.add(to_offset) };
            // SAFETY: as above.
            let from = unsafe { from.add(from_offset) };
            // SAFETY: a run of the elements (guaranteed by the caller).
            unsafe { self.copy(to, from, run, stream) }
        })
    }

    /// Casts an element at every step of the loops, by the rules of [`orlop_core::cast()`]. Both addresses
    /// are those of the first element and on this device.
    ///
    /// # Errors
    ///
    /// [`Error::CannotCast`], before anything is submitted, if it does not cast between these types: the
    /// caller then casts on the host. [`Error::WrongOperations`]; the backend's own errors.
    ///
    /// # Safety
    ///
    /// Those of [`DeviceOps::copy_strided`], with the sizes of the dtypes.
    unsafe fn cast(
        &self,
        to: (DevicePtr, DType),
        from: (DevicePtr, DType),
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        let _ = (loops, stream);
        Err(Error::CannotCast { from: from.1, to: to.1 })
    }

    /// Fills memory of this device with `count` consecutive repetitions of `pattern`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOperations`] if the memory is another device's; the backend's own.
    ///
    /// # Safety
    ///
    /// `to .. to + pattern.len() * count` is valid, and accessed only by this stream until it has done the
    /// fill.
    unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()>;

    /// Writes `pattern` at every step of the loops, whose source is not used; `to` is the address of the
    /// first element. The default fills each run of adjacent elements with [`DeviceOps::fill`].
    ///
    /// # Errors
    ///
    /// Those of [`DeviceOps::fill`]. Some elements may have been written.
    ///
    /// # Safety
    ///
    /// As for [`DeviceOps::fill`], for the elements at all steps, which do not overlap.
    unsafe fn fill_strided(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        loops.try_for_each_part(1, |outer, _, inner| {
            let (run, within) = match *inner.dims() {
                [dim] if dim.dst == pattern.len() => (dim.size, StridedLoops::once()),
                _ => (1, inner),
            };
            within.try_for_each_part(0, |offset, _, _| {
                // SAFETY: the elements of a step are inside (guaranteed by the caller).
                let to = unsafe { to.add(outer + offset) };
                // SAFETY: a run of the elements (guaranteed by the caller).
                unsafe { self.fill(to, pattern, run, stream) }
            })
        })
    }

    /// Writes zeros.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceOps::fill`].
    ///
    /// # Safety
    ///
    /// As for [`DeviceOps::fill`].
    unsafe fn zero(&self, to: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill(to, &[0], bytes, stream) }
    }

    /// Makes work submitted to `stream` from now on wait for the work submitted to `earlier` so far. The
    /// default waits on the host.
    ///
    /// # Errors
    ///
    /// [`Error::StreamsNotHonoured`] if it cannot wait for this stream; those of [`DeviceOps::synchronize`].
    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        let _ = stream;
        self.synchronize(earlier)
    }

    /// Waits until all work submitted to `stream` is done.
    ///
    /// # Errors
    ///
    /// The backend's own, including errors of earlier work.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// Records an event behind all work submitted to `stream` so far, so that the host can wait for that
    /// without what is submitted later. `None`, the default, if the backend has no events.
    ///
    /// # Errors
    ///
    /// [`Error::StreamsNotHonoured`] if it is not one of its streams; the backend's own.
    fn record_event(&self, stream: StreamId) -> Result<Option<Box<dyn StreamEvent>>> {
        let _ = stream;
        Ok(None)
    }

    /// Returns the size of the device's memory and how much is free (CUDA: `cuMemGetInfo`), or `None` if
    /// unknown.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

impl dyn DeviceOps + '_ {
    /// Returns an error unless these are the operations of `device`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOperations`]
    pub fn check_on(&self, device: Device) -> Result<()> {
        let operations = self.device();
        if operations == device { Ok(()) } else { Err(Error::WrongOperations { operations, device }) }
    }

    /// Returns an error unless these operations, on a stream, can be work on memory of `device`: of their own
    /// device, of the host, or of a peer.
    pub(crate) fn check_orders(&self, device: Device) -> Result<()> {
        if device.is_cpu() || self.device().device_type() == device.device_type() {
            return Ok(());
        }
        self.check_on(device)
    }
}
