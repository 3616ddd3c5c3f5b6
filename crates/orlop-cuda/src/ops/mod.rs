//! [`CudaOps`]: copies, casts and fills on streams.
//!
//! | module | what it holds |
//! |---|---|
//! | `copy_path` | from where to where a copy goes |
//! | `in_context` | what is kept as long as a context |
//! | `on_stream` | copies and fills of runs of bytes |
//! | `kernels` | casts, and copies and fills of single elements |
//! | `staging` | copies of pageable host memory, through pinned buffers |
//! | `strided` | strided copies, as copies of rows and planes |

mod copy_path;
mod in_context;
mod kernels;
mod on_stream;
mod staging;
mod strided;

use self::copy_path::CopyPath;
use self::in_context::ContextResources;
use self::kernels::{Kernels, is_copy};
use self::on_stream::OnStream;
use self::staging::StagingBuffers;
use crate::device::{self, CudaDevice, StreamTarget, resolve};
use crate::error::CudaError;
use orlop_alloc::{
    DeviceMemory, Error, Result, StreamEvent,
    engine_support::{DeviceOps, DevicePtr, LoopDim, StridedLoops},
};
use orlop_core::{DType, Device, StreamId};
use std::sync::Arc;

/// The memory operations of a CUDA device: copies to, from and on the device, casts, fills, zeros.
///
/// A stream of another device is refused ([`CudaError::OtherDevice`]): it cannot access all memory of this
/// one.
/// Operations on the host's stream ([`StreamId::HOST`]) run on the device's default stream. Copies of
/// pageable host memory go through two pinned buffers: a source has been read, and a destination written,
/// when the call returns. All other operations return before they are done.
///
/// Casts, and strided copies and fills that the driver has no call for, are kernels, which are loaded at
/// their first use ([`CudaOps::load_kernels`] loads them earlier). Where they cannot be loaded, and on a
/// stream that captures before they are, casts are left to the host ([`Error::CannotCast`]), and copies and
/// fills take more calls. Casts need elements aligned to their dtypes, and are left to the host otherwise.
///
/// Copies between two CUDA devices that are open need no access to each other: the driver then copies through
/// the host. Strided ones are a call for each run of elements.
#[derive(Debug)]
pub struct CudaOps {
    device: CudaDevice,
    resources: Arc<ContextResources>,
    staging: StagingBuffers,
}

/// The pinned memory of buffers for copies of pageable memory, which no allocator counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StagingUsage {
    /// Bytes that these operations keep for the next copies. They are freed with the operations.
    pub kept: u64,
    /// Bytes of the device's context that were to be freed, and that the driver refused to free. It is called
    /// again when a buffer is created or freed; the memory ends with the context at the latest.
    pub unfreed: u64,
}

impl CudaOps {
    /// Creates the operations of a device.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        let resources = ContextResources::of(device);
        let staging = StagingBuffers::new(device, &resources);
        Self { device: device.clone(), resources, staging }
    }

    /// Loads the kernels now. The driver compiles them, which takes a tenth of a second unless it has cached
    /// the result, and waits for the device (driver 580 on an H100); a program that captures a graph first,
    /// or that must not be late once, loads them before.
    ///
    /// # Errors
    ///
    /// Failures of the driver, such as one without its compiler. Operations then do without the kernels.
    pub fn load_kernels(&self) -> std::result::Result<(), CudaError> {
        let device = self.device.state();
        self.resources.kernels.load(&device.enter()?).map(|_| ())
    }

    /// Returns the pinned memory that copies of pageable memory take.
    #[must_use]
    pub fn staging(&self) -> StagingUsage {
        let [kept, unfreed] = [self.staging.kept_bytes(), self.resources.unfreed_bytes()];
        StagingUsage { kept: kept as u64, unfreed: unfreed as u64 }
    }

    /// Returns the PTX of the kernels, to be checked with NVIDIA's tools.
    #[must_use]
    pub fn kernel_text() -> String {
        kernels::text()
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
        if !std::ptr::eq(&*device, &**self.device.state()) {
            return Err(CudaError::OtherDevice { stream, device: self.device.device() }.into());
        }
        let scope = device.enter()?;
        scope.refuse_implicit(handle, "work on the default stream")?;
        Ok(work(OnStream { device: &device, scope: &scope, handle })?)
    }

    /// Returns the kernels if there are any.
    fn kernels(&self, on: &OnStream<'_>) -> Option<&Kernels> {
        self.resources.kernels.kernels(on)
    }

    /// Fills each run of adjacent elements.
    ///
    /// # Safety
    ///
    /// [`DeviceOps::fill_strided`].
    unsafe fn fill_runs(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        loops.try_for_each_part(1, |outer, _, inner| {
            let dim = inner.dims().first().copied().unwrap_or(LoopDim { size: 1, dst: 0, src: 0 });
            let (calls, count) = if dim.dst == pattern.len() { (1, dim.size) } else { (dim.size, 1) };
            (0..calls).try_for_each(|step| {
                // SAFETY: the elements of a step are inside (guaranteed by the caller).
                let to = unsafe { to.add(outer + step * dim.dst) };
                // SAFETY: a run of the elements (guaranteed by the caller).
                unsafe { self.fill(to, pattern, count, stream) }
            })
        })
    }

    fn check_own(&self, place: DevicePtr) -> Result<()> {
        (self as &dyn DeviceOps).check_on(place.device)
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
// the stream. 4. the device is that of the context, and addresses of others are refused. 5. the driver waits
// for an event, or refuses to. 6. the driver waits for the event.
unsafe impl DeviceOps for CudaOps {
    fn device(&self) -> Device {
        self.device.device()
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
        let path = CopyPath::of(&self.device, to, from)?;
        if bytes == 0 {
            return Ok(());
        }
        let (to_address, from_address) = (to.ptr.as_ptr().addr(), from.ptr.as_ptr().addr());
        self.on(stream, |on| match path {
            // SAFETY: guaranteed by the caller.
            CopyPath::Peer { to: ref to_device, from: ref from_device } => unsafe {
                on.copy_peer((to_address, to_device), (from_address, from_device), bytes)
            },
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
        let path = CopyPath::of(&self.device, to, from)?;
        if loops.steps() == 0 || item == 0 {
            return Ok(());
        }
        let (run, outer) = loops.with_run(item);
        if path.is_by_runs() {
            // Through the buffers, or between devices.
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
            let places = (to.ptr.as_ptr().addr(), from.ptr.as_ptr().addr());
            if matches!(path, CopyPath::Within)
                && !strided::is_one_call(run, outer.dims())
                && let Some(kernels) = self.kernels(&on)
            {
                // SAFETY: guaranteed by the caller.
                return unsafe { kernels.copy(&on, places, run, outer.dims()) };
            }
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
        to: (DevicePtr, DType),
        from: (DevicePtr, DType),
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        self.check_own(to.0)?;
        self.check_own(from.0)?;
        if loops.steps() == 0 {
            return Ok(());
        }
        if is_copy(to.1, from.1) {
            // SAFETY: guaranteed by the caller: elements of one size.
            return unsafe { self.copy_strided(to.0, from.0, to.1.size(), loops, stream) };
        }
        let is_done = self.on(stream, |on| {
            let Some(kernels) = self.kernels(&on) else { return Ok(false) };
            let address = |(place, dtype): (DevicePtr, DType)| (place.ptr.as_ptr().addr(), dtype);
            // SAFETY: guaranteed by the caller.
            unsafe { kernels.cast(&on, address(to), address(from), loops) }
        })?;
        if is_done { Ok(()) } else { Err(Error::CannotCast { from: from.1, to: to.1 }) }
    }

    unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
        self.check_own(to)?;
        let total = pattern.len().saturating_mul(count);
        if total == 0 {
            return Ok(());
        }
        let (address, pattern) = (to.ptr.as_ptr().addr(), shortest(pattern));
        self.on(stream, |on| {
            if pattern.len() <= 4 && pattern.len() != 3 && address.is_multiple_of(pattern.len()) {
                // SAFETY: guaranteed by the caller.
                return unsafe { on.set(address, pattern, total / pattern.len()) };
            }
            let aligned = pattern.len().is_power_of_two() && address.is_multiple_of(pattern.len());
            let count = total / pattern.len();
            if aligned
                && pattern.len() <= 16
                && count > 2
                && let Some(kernels) = self.kernels(&on)
            {
                let loops = [LoopDim { size: count, dst: pattern.len(), src: 0 }];
                // SAFETY: guaranteed by the caller.
                return unsafe { kernels.fill(&on, address, pattern, &loops) };
            }
            // SAFETY: guaranteed by the caller.
            unsafe { on.fill_by_doubling(address, pattern, total) }
        })
    }

    unsafe fn fill_strided(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        self.check_own(to)?;
        if loops.steps() == 0 || pattern.is_empty() {
            return Ok(());
        }
        if let [run] = loops.dims()
            && run.dst == pattern.len()
        {
            // SAFETY: guaranteed by the caller: one run of elements.
            return unsafe { self.fill(to, pattern, run.size, stream) };
        }
        let is_done = self.on(stream, |on| {
            let Some(kernels) = self.kernels(&on) else { return Ok(false) };
            // SAFETY: guaranteed by the caller.
            unsafe { kernels.fill(&on, to.ptr.as_ptr().addr(), pattern, loops.dims()) }?;
            Ok(true)
        })?;
        // SAFETY: guaranteed by the caller.
        if is_done { Ok(()) } else { unsafe { self.fill_runs(to, pattern, loops, stream) } }
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        let (stream, earlier) = (self.stream(stream), self.stream(earlier));
        if stream != earlier {
            device::order(stream, earlier)?;
        }
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        match resolve(self.stream(stream))? {
            StreamTarget::Stream { device, handle, _entry } => {
                device.enter()?.finish_stream(handle)?;
            }
            StreamTarget::Ended(_) => {
                let event = device::record(stream)?;
                device::synchronize(event).inspect_err(|_| device::forget(event))?;
            }
            StreamTarget::Host => {}
        }
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<Option<Box<dyn StreamEvent>>> {
        Ok(Some(Box::new(device::RecordedEvent::new(self.stream(stream))?)))
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
