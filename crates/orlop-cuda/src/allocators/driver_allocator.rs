//! [`DriverAllocator`]: blocks that the driver allocates and frees one by one.

use super::MemoryPool;
use crate::device::{self, CudaDevice, StreamTarget, resolve};
use crate::driver::call;
use crate::error::CudaError;
use crate::memory;
use orlop_alloc::engine_support::{CacheTrims, trace_guarded};
use orlop_alloc::{
    Access, Allocator, AllocatorRef, DeviceMemory, Error, OutOfMemory, Refusal, Request, Result, Semantics,
    Usage,
    engine_support::{RawBlock, Record},
};
use orlop_core::{Device, StreamId};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses of the driver are multiples of this many bytes.
const DRIVER_ALIGN: usize = 256;

/// An allocator without a cache of its own.
///
/// As [stream-ordered](Self::stream_ordered), the driver has the cache: a [`MemoryPool`], from which memory
/// is allocated and to which it returns in the order of a stream, without waiting. As
/// [direct](Self::direct), every block is allocated and freed at once, and both wait for the device: for
/// debugging, and for blocks that live as long as the program.
#[derive(Debug)]
pub struct DriverAllocator {
    device: CudaDevice,
    order: FreeOrder,
    figures: Arc<DriverFigures>,
}

/// What an allocator counts.
#[derive(Debug, Default)]
struct DriverFigures {
    reserved: AtomicU64,
    peak: AtomicU64,
    blocks: AtomicU64,
    /// The bytes of all allocators of the pool: [`PoolAccount::in_blocks`](super::pool::PoolAccount).
    in_blocks: Arc<AtomicU64>,
}

/// When a freed block returns to the driver.
#[derive(Debug, Clone)]
enum FreeOrder {
    /// At once, after a wait.
    Direct,
    /// In the order of its stream, to this pool.
    Stream(Arc<MemoryPool>),
}

impl DriverAllocator {
    /// Creates an allocator that calls `cuMemAlloc` and `cuMemFree` for each block.
    #[must_use]
    pub fn direct(device: &CudaDevice) -> Self {
        Self::new(device, FreeOrder::Direct)
    }

    /// Creates an allocator that calls `cuMemAllocFromPoolAsync` and `cuMemFreeAsync` for each block, with a
    /// pool of its own, which keeps freed memory. [`DriverAllocator::in_pool`] takes another pool.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`] if the device has no memory pools; failures of the driver.
    pub fn stream_ordered(device: &CudaDevice) -> Result<Self, CudaError> {
        Ok(Self::in_pool(Arc::new(MemoryPool::new(device)?)))
    }

    /// Creates an allocator as [`DriverAllocator::stream_ordered`] does, over this pool.
    #[must_use]
    pub fn in_pool(pool: Arc<MemoryPool>) -> Self {
        Self::new(&pool.device().clone(), FreeOrder::Stream(pool))
    }

    /// Returns the pool of a stream-ordered allocator.
    #[must_use]
    pub fn pool(&self) -> Option<&Arc<MemoryPool>> {
        match &self.order {
            FreeOrder::Direct => None,
            FreeOrder::Stream(pool) => Some(pool),
        }
    }

    fn new(device: &CudaDevice, order: FreeOrder) -> Self {
        let in_blocks = match &order {
            FreeOrder::Direct => Arc::default(),
            FreeOrder::Stream(pool) => Arc::clone(&pool.account.in_blocks),
        };
        let figures = Arc::new(DriverFigures { in_blocks, ..DriverFigures::default() });
        Self { device: device.clone(), order, figures }
    }

    /// Returns a number that differs from that of all other allocators.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.figures).addr()
    }

    /// The host's stream stands for the device's default stream.
    fn stream(&self, stream: StreamId) -> StreamId {
        if stream == StreamId::HOST { self.device.default_stream() } else { stream }
    }

    /// Allocates memory. If there is none, it tries again after each linked allocator that gave memory back,
    /// unless the request is without retry.
    fn take(&self, bytes: usize, stream: StreamId, retry: bool) -> Result<u64, CudaError> {
        let may_fit = bytes as u64 <= self.device.state().total();
        let mut trims = CacheTrims::default();
        loop {
            let taken = self.take_once(bytes, stream);
            let may_retry = retry && may_fit && matches!(taken, Err(CudaError::OutOfMemory { .. }));
            if !may_retry || !trims.trim_next(|| self.device.state().linked_allocators()) {
                return taken;
            }
        }
    }

    fn take_once(&self, bytes: usize, stream: StreamId) -> Result<u64, CudaError> {
        device::run_deferred_frees();
        self.device.state().check_stream(stream)?;
        match &self.order {
            FreeOrder::Direct => {
                let mut address = 0;
                let scope = self.device.state().enter()?;
                // SAFETY: it writes one address.
                unsafe { call!(scope.driver(), cuMemAlloc_v2(&raw mut address, bytes)) }?;
                Ok(address)
            }
            FreeOrder::Stream(pool) => {
                // Memory whose free is pending cannot serve other streams; after a wait it can. Streams that
                // capture are not waited for.
                match Self::take_from(pool, bytes, stream) {
                    Err(CudaError::OutOfMemory { .. }) => match self.device.state().finish_streams() {
                        Ok(()) | Err(CudaError::Capturing { .. }) => Self::take_from(pool, bytes, stream),
                        Err(failed) => Err(failed),
                    },
                    taken => taken,
                }
            }
        }
    }

    fn take_from(pool: &MemoryPool, bytes: usize, stream: StreamId) -> Result<u64, CudaError> {
        // Bound, so that the stream exists until the call has returned.
        let StreamTarget::Stream { device, handle, _entry } = resolve(stream)? else {
            return Err(CudaError::UnknownStream { stream });
        };
        let (scope, mut address) = (device.enter()?, 0);
        // The memory would be the graph's.
        scope.refuse_capturing(handle, "cuMemAllocFromPoolAsync")?;
        let pool = pool.handle();
        // SAFETY: it writes one address; the target keeps the stream, and the allocator the pool.
        unsafe { call!(scope.driver(), cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, handle)) }?;
        Ok(address)
    }

    /// Gives memory back after the work that `uses` have now, or later if a capture forbids it. Its bytes
    /// are counted until then, and for good if it cannot be given back.
    ///
    /// # Safety
    ///
    /// It came from `take` for `memory.stream`, is given back once, and no other stream uses it.
    unsafe fn give(&self, mut memory: DriverMemory) {
        let (device, order) = (self.device.clone(), self.order.clone());
        let figures = Arc::clone(&self.figures);
        let bytes = memory.bytes;
        let mut free = move || {
            // SAFETY: guaranteed by the caller; it is not called again after it has succeeded.
            unsafe { memory.free(&device, &order) }?;
            figures.remove(memory.bytes);
            Ok(())
        };
        match free() {
            Ok(()) => {}
            Err(CudaError::Capturing { .. }) => device::free_after_capture(Box::new(free)),
            Err(error) => trace_guarded(|| tracing::error!(%error, bytes, "device memory leaked")),
        }
    }

    #[cold]
    fn refuse(&self, request: &Request, error: CudaError) -> Error {
        if !matches!(error, CudaError::OutOfMemory { .. }) {
            return error.into();
        }
        let mut report = OutOfMemory::new(Refusal::Backing, self.name(), self.device(), request);
        report.live = self.figures.reserved.load(Ordering::Relaxed);
        report.reserved = self.usage().reserved;
        report.set_caches(|| self.device.state().linked_allocators());
        report.into()
    }
}

impl Drop for DriverAllocator {
    fn drop(&mut self) {
        if let Some(pool) = self.pool() {
            pool.account.leave(self.number());
        }
    }
}

impl DriverFigures {
    fn add(&self, bytes: u64) {
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        self.in_blocks.fetch_add(bytes, Ordering::Relaxed);
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        self.in_blocks.fetch_sub(bytes, Ordering::Relaxed);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that was allocated for a stream.
struct DriverMemory {
    address: u64,
    bytes: u64,
    stream: StreamId,
    /// The other streams that used it.
    uses: Vec<StreamId>,
}

impl DriverMemory {
    /// Gives the memory back after the work that its streams have now.
    ///
    /// # Safety
    ///
    /// It is in use, and no other stream uses it.
    unsafe fn free(&mut self, owner: &CudaDevice, order: &FreeOrder) -> Result<(), CudaError> {
        match order {
            FreeOrder::Direct => {
                for &stream in self.uses.iter().chain([&self.stream]) {
                    let event = device::record(stream)?;
                    device::synchronize(event).inspect_err(|_| device::forget(event))?;
                }
                let scope = owner.state().enter()?;
                // SAFETY: guaranteed by the caller; its streams were waited for.
                Ok(unsafe { call!(scope.driver(), cuMemFree_v2(self.address)) }?)
            }
            FreeOrder::Stream(_) => {
                // A stream that is gone is replaced by the default one, which waits for its work.
                let (target, on, gone) = match resolve(self.stream)? {
                    target @ StreamTarget::Stream { .. } => (target, self.stream, None),
                    _ => (resolve(owner.default_stream())?, owner.default_stream(), Some(self.stream)),
                };
                let StreamTarget::Stream { device, handle, _entry } = target else {
                    return Err(CudaError::UnknownStream { stream: self.stream });
                };
                for other in self.uses.iter().copied().chain(gone) {
                    let event = device::record(other)?;
                    device::wait(on, event).inspect_err(|_| device::forget(event))?;
                }
                let scope = device.enter()?;
                // A graph frees only its own memory.
                scope.refuse_capturing(handle, "cuMemFreeAsync")?;
                // SAFETY: guaranteed by the caller; the stream waits for all others.
                Ok(unsafe { call!(scope.driver(), cuMemFreeAsync(self.address, handle)) }?)
            }
        }
    }
}

// SAFETY: 1. blocks are the driver's; alignments beyond its own are cut out of larger ones. 2. they are the
// device's. 3. zeros are written on the request's stream, or the request fails. 4. the driver may be called
// from any thread. 5. nothing refers to `self`. 6. there is no counter.
unsafe impl Allocator for DriverAllocator {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device())?;
        let stream = self.stream(request.stream);
        let slack = request.align.bytes().saturating_sub(DRIVER_ALIGN);
        let bytes = request.bytes.max(1).saturating_add(slack);
        let start = self.take(bytes, stream, request.retry).map_err(|error| self.refuse(request, error))?;
        let made = (|| -> Result<(usize, NonNull<u8>)> {
            let start = usize::try_from(start).map_err(|_| CudaError::OutOfMemory { call: "addresses" })?;
            let address = request.align.round_up(start)?;
            if request.zeroed {
                // SAFETY: allocated above, for this stream.
                unsafe { memory::zero(address, request.bytes, stream) }?;
            }
            let ptr = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(address));
            ptr.ok_or(Error::ForeignPointer { address }).map(|ptr| (start, ptr))
        })();
        self.figures.add(bytes as u64);
        let (start, ptr) = match made {
            Ok(made) => made,
            Err(error) => {
                let (address, bytes, uses) = (start, bytes as u64, Vec::new());
                // SAFETY: allocated above, and used by this stream only.
                unsafe { self.give(DriverMemory { address, bytes, stream, uses }) };
                return Err(error);
            }
        };
        let granted = bytes - (ptr.as_ptr().addr() - start);
        let mut record = Box::new(Record::new(ptr, granted, self.device(), Access::Device).token(start));
        record.assign(request);
        record.stream = stream;
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (start, stream) = (block.token, self.stream(block.stream));
        let bytes = block.granted + (block.address() - start);
        let uses = block.stream_uses().map(|stream| self.stream(stream)).filter(|&other| other != stream);
        let memory =
            DriverMemory { address: start as u64, bytes: bytes as u64, stream, uses: uses.collect() };
        // SAFETY: every block of this allocator has a box from `allocate`.
        drop(unsafe { block.into_record() });
        // SAFETY: a block of this allocator, returned once (guaranteed by the caller).
        unsafe { self.give(memory) };
        Ok(())
    }

    fn device(&self) -> Device {
        self.device.device()
    }

    fn name(&self) -> &str {
        match self.order {
            FreeOrder::Direct => "cuda-direct",
            FreeOrder::Stream(_) => "cuda-stream-ordered",
        }
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.device.memory().ok()
    }

    /// The reserved bytes of a pool include what it keeps, and what other code has allocated from it. Of
    /// several allocators of one pool, one counts that.
    fn usage(&self) -> Usage {
        let [reserved, peak_reserved, regions] =
            [&self.figures.reserved, &self.figures.peak, &self.figures.blocks]
                .map(|figure| figure.load(Ordering::Relaxed));
        let own = Usage { reserved, peak_reserved, regions, ..Usage::default() };
        let Some(pool) = self.pool().filter(|pool| pool.account.is_held_by(self.number())) else {
            return own;
        };
        let Ok(usage) = pool.usage() else { return own };
        let others = pool.account.in_blocks.load(Ordering::Relaxed).saturating_sub(reserved);
        let reserved = usage.reserved.saturating_sub(others);
        let peak_reserved = usage.peak_reserved.saturating_sub(others).max(reserved);
        // The driver does not say how many there are.
        Usage { reserved, peak_reserved, regions: u64::from(reserved > 0), ..own }
    }

    fn reset_peak(&self) {
        let reserved = self.figures.reserved.load(Ordering::Relaxed);
        self.figures.peak.store(reserved, Ordering::Relaxed);
        let reset = self.pool().map_or(Ok(()), |pool| pool.reset_peaks());
        if let Err(error) = reset {
            trace_guarded(|| tracing::error!(%error, "the peaks of a memory pool were not reset"));
        }
    }

    fn trim(&self, target: u64) -> u64 {
        let Some(pool) = self.pool() else { return 0 };
        let reserved = || pool.usage().map(|usage| usage.reserved);
        device::run_deferred_frees();
        // Pending frees are done after a wait. Streams that capture are not waited for, and less is given
        // back.
        let _waited = self.device.state().finish_streams();
        let given = reserved().and_then(|before| {
            pool.trim(target)?;
            Ok(before.saturating_sub(reserved()?))
        });
        given.unwrap_or(0)
    }

    fn on_shared(&self, handle: &AllocatorRef) {
        self.device.link(handle);
    }

    fn semantics(&self) -> Semantics {
        Semantics { stream_ordered: true, ..Semantics::default() }
    }
}
