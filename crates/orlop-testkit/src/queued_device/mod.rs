//! [`QueuedDevice`]: a device whose streams run only when a test advances them.
//!
//! A real device hides missing waits: its work is usually done when a test looks. Here nothing is done
//! before it has to be, so memory that is reused too early, and bytes that are read too early, have wrong
//! contents in every run.

mod queues;

use orlop_alloc::{
    Access, Allocator, AllocatorRef, Error, Result, StreamEvent,
    engine_support::{DeviceOps, DevicePtr, StridedLoops},
};
use orlop_context::Context;
use orlop_core::{DType, Device, Layout, MemoryKind, Shape, StreamId};
use orlop_device::{BackingError, DeviceAllocator, DeviceBacking, EventId, Policy};
use orlop_host::kernels;
use queues::{DIRTY, Queues, Region, StreamPosition, Work, WorkAddress};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device over host memory with streams, which are queues of work. Work of a stream runs when a test
/// advances the stream, when the host waits for it, or when another stream that waits for it runs.
///
/// For the CPU it serves as host memory that streams use, such as pinned memory.
///
/// It is a [`DeviceBacking`] and implements [`DeviceOps`], so that allocators defer reuse by the same
/// streams. Released memory is overwritten, and freed with the device. Clones are handles to the same device.
#[derive(Clone)]
pub struct QueuedDevice {
    device: Device,
    queues: Arc<Mutex<Queues>>,
}

/// The number of calls of a [`QueuedDevice`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCalls {
    /// Copies of runs.
    pub copies: usize,
    /// Strided copies.
    pub strided_copies: usize,
    /// Casts that were not refused.
    pub casts: usize,
    /// Fills and zeroing, strided or not.
    pub fills: usize,
    /// Waits of a stream for another.
    pub waits: usize,
    /// Waits of the host.
    pub synchronizations: usize,
}

impl QueuedDevice {
    /// Creates a device of `memory` bytes.
    #[must_use]
    pub fn new(device: Device, memory: u64) -> Self {
        Self { device, queues: Arc::new(Mutex::new(Queues { memory, ..Queues::default() })) }
    }

    /// Creates a caching allocator over the device.
    #[must_use]
    pub fn allocator(&self) -> AllocatorRef {
        DeviceAllocator::new(self.clone(), Policy::orlop()).into_ref().erase()
    }

    /// Creates a context with the device: a caching allocator over it, and its operations.
    ///
    /// # Errors
    ///
    /// Those of [`Context::register`].
    pub fn context(&self) -> Result<Context> {
        let context = Context::new();
        context.register(self.device, MemoryKind::Default, self.allocator())?;
        context.register_ops(self.device, Arc::new(self.clone()))?;
        Ok(context)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Casts on the device from now on. Without this, casts are refused.
    pub fn enable_casts(&self) {
        self.queues().casts = true;
    }

    /// Fails the next operation that would submit work.
    pub fn fail_next(&self) {
        self.queues().fails_next = true;
    }

    /// Runs the work submitted to a stream so far.
    pub fn advance(&self, stream: StreamId) {
        let mut queues = self.queues();
        let end = queues.position(stream);
        queues.run_until(end);
    }

    /// Returns the number of work items of a stream that have not run.
    #[must_use]
    pub fn pending(&self, stream: StreamId) -> usize {
        self.queues().streams.get(&stream).map_or(0, |queue| queue.work.len())
    }

    /// Returns the calls so far.
    #[must_use]
    pub fn calls(&self) -> DeviceCalls {
        self.queues().calls
    }
}

impl fmt::Debug for QueuedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedDevice").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Returns the offsets of both sides at all steps.
fn offsets(loops: StridedLoops<'_>) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let Ok(()) = loops.try_for_each_part(0, |to, from, _| {
        all.push((to, from));
        Ok::<(), std::convert::Infallible>(())
    });
    all
}

// SAFETY: 1. work accesses the given elements only. 2. sources that are not kept, and patterns, are copied by
// the call.
// 3. waiting runs the work. 4. all memory is the host's. 5. waits are queued as work. 6. waiting runs the
// work before the event.
unsafe impl DeviceOps for QueuedDevice {
    fn device(&self) -> Device {
        self.device
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
        let (to, source) = (WorkAddress::of(to.ptr), WorkAddress::of(from.ptr));
        let mut queues = self.queues();
        queues.calls.copies += 1;
        if from.device.is_cpu() && !from.is_kept {
            // SAFETY: the source is valid during the call, and initialised host memory.
            let staged = unsafe { std::slice::from_raw_parts(source.at(0), bytes) }.to_vec();
            return queues.submit(stream, move || {
                // SAFETY: the destination is valid until this has run (guaranteed by the caller).
                unsafe { to.at(0).copy_from_nonoverlapping(staged.as_ptr(), bytes) };
            });
        }
        queues.submit(stream, move || {
            // SAFETY: both are valid until this has run (guaranteed by the caller).
            unsafe { to.at(0).copy_from_nonoverlapping(source.at(0), bytes) };
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
        if to.device.is_cpu() || from.device.is_cpu() {
            // Run by run, as a device would that has strided copies of its own memory only.
            return loops.try_for_each_part(0, |to_offset, from_offset, _| {
                // SAFETY: inside the elements (guaranteed by the caller).
                let to = unsafe { to.add(to_offset) };
                // SAFETY: as above.
                let from = unsafe { from.add(from_offset) };
                // SAFETY: one element (guaranteed by the caller).
                unsafe { self.copy(to, from, item, stream) }
            });
        }
        let (to, from, steps) = (WorkAddress::of(to.ptr), WorkAddress::of(from.ptr), offsets(loops));
        let mut queues = self.queues();
        queues.calls.strided_copies += 1;
        queues.submit(stream, move || {
            for (to_offset, from_offset) in steps {
                // SAFETY: both elements are valid until this has run (guaranteed by the caller).
                unsafe { to.at(to_offset).copy_from_nonoverlapping(from.at(from_offset), item) };
            }
        })
    }

    unsafe fn cast(
        &self,
        (to, to_dtype): (DevicePtr, DType),
        (from, from_dtype): (DevicePtr, DType),
        loops: StridedLoops<'_>,
        stream: StreamId,
    ) -> Result<()> {
        let (to, from, steps) = (WorkAddress::of(to.ptr), WorkAddress::of(from.ptr), offsets(loops));
        let one = Layout::contiguous(Shape::scalar());
        let mut queues = self.queues();
        if !queues.casts {
            return Err(Error::CannotCast { from: from_dtype, to: to_dtype });
        }
        queues.calls.casts += 1;
        queues.submit(stream, move || {
            for (to_offset, from_offset) in steps {
                let (to, from) = (to.at(to_offset), from.at(from_offset));
                // SAFETY: both elements are valid until this has run (guaranteed by the caller).
                unsafe { kernels::cast(to, &one, to_dtype, from, &one, from_dtype) };
            }
        })
    }

    unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
        let (to, bytes) = (WorkAddress::of(to.ptr), pattern.repeat(count));
        let mut queues = self.queues();
        queues.calls.fills += 1;
        queues.submit(stream, move || {
            // SAFETY: the range is valid until this has run (guaranteed by the caller).
            unsafe { to.at(0).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        })
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        let mut queues = self.queues();
        queues.calls.waits += 1;
        let position = queues.position(earlier);
        queues.streams.entry(stream).or_default().work.push_back(Work::Wait(position));
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        self.queues().calls.synchronizations += 1;
        self.advance(stream);
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<Option<Box<dyn StreamEvent>>> {
        let position = self.queues().position(stream);
        Ok(Some(Box::new(QueuedEvent { device: self.clone(), position })))
    }
}

/// A position in a stream.
#[derive(Debug)]
struct QueuedEvent {
    device: QueuedDevice,
    position: StreamPosition,
}

impl StreamEvent for QueuedEvent {
    fn wait(&self) -> Result<()> {
        let mut queues = self.device.queues();
        queues.calls.synchronizations += 1;
        queues.run_until(self.position);
        Ok(())
    }
}

// SAFETY: 1. regions are boxes of their own, freed with the device only. 2. an event is complete when the
// work before it has run; waiting is work too. 3. `allocate` alone fails, without an effect.
unsafe impl DeviceBacking for QueuedDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let mut queues = self.queues();
        let used: usize = queues.regions.iter().map(Region::size).sum();
        if (used + bytes) as u64 > queues.memory {
            return Err(BackingError::OutOfMemory);
        }
        let region = Region::new(bytes);
        let address = region.address();
        queues.regions.push(region);
        Ok(address)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        let _queues = self.queues();
        // SAFETY: memory of a region, which exists as long as the device (guaranteed by the caller).
        unsafe { WorkAddress(address).at(0).write_bytes(DIRTY, bytes) };
        Ok(())
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        let to = WorkAddress(address);
        let mut queues = self.queues();
        queues.calls.fills += 1;
        let work = move || {
            // SAFETY: the engine's memory, which the stream alone uses (guaranteed by the caller).
            unsafe { to.at(0).write_bytes(0, bytes) };
        };
        queues.submit(stream, work).map_err(|_| BackingError::Unsupported)
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        let mut queues = self.queues();
        let position = queues.position(stream);
        queues.recorded += 1;
        let event = queues.recorded;
        queues.events.insert(event, position);
        Ok(EventId(event))
    }

    fn query(&self, EventId(event): EventId) -> Result<bool, BackingError> {
        let mut queues = self.queues();
        let done = queues
            .events
            .get(&event)
            .is_none_or(|at| queues.streams.get(&at.stream).is_none_or(|queue| queue.done >= at.position));
        if done {
            queues.events.remove(&event);
        }
        Ok(done)
    }

    fn synchronize(&self, EventId(event): EventId) -> Result<(), BackingError> {
        let mut queues = self.queues();
        queues.calls.synchronizations += 1;
        if let Some(position) = queues.events.remove(&event) {
            queues.run_until(position);
        }
        Ok(())
    }

    fn forget(&self, EventId(event): EventId) {
        self.queues().events.remove(&event);
    }

    fn wait(&self, stream: StreamId, EventId(event): EventId) -> Result<(), BackingError> {
        let mut queues = self.queues();
        if let Some(position) = queues.events.remove(&event) {
            queues.streams.entry(stream).or_default().work.push_back(Work::Wait(position));
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.queues().memory
    }

    fn device(&self) -> Device {
        self.device
    }

    fn access(&self) -> Access {
        if self.device.is_cpu() { Access::Host } else { Access::Device }
    }

    fn name(&self) -> &str {
        "queued"
    }
}
