//! The engine behind two locks, as an [`Allocator`].
//!
//! Requests that cached memory serves, frees and figures take the engine's lock, for a short time. What calls
//! the device and may wait takes the growth lock first, and gives up the engine's lock during these calls:
//! see [`SlowPath`].

use crate::backing::{BackingError, DeviceBacking, GuardedDevice, REGION_ALIGN};
use crate::engine::{CacheMiss, DeviceBlock, DeviceRequest, Engine, EngineLock, SlowPath};
use crate::engine::{PoolId, StreamFilter};
use crate::error::DeviceError;
use crate::policy::Policy;
use crate::stats::DeviceStats;
use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_alloc::{
    Access, Allocator, DeviceMemory, Error, OutOfMemory, RawBlock, Record, Refusal, RegionWatch, Request,
    Result, Semantics, Usage,
};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_sync::{Mutex, MutexGuard};
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A caching allocator for a device.
///
/// ```
/// use orlop_alloc::{Allocator, Request};
/// use orlop_device::{DeviceAllocator, NullDevice, Policy};
/// use orlop_core::Device;
///
/// let device = NullDevice::new(Device::cuda(0), 80 << 30);
/// let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
/// let block = allocator.allocate(&Request::new(1000))?;
/// assert_eq!((block.len(), block.capacity()), (1000, 1024));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceAllocator<B: DeviceBacking> {
    name: Box<str>,
    device: Device,
    access: Access,
    /// The stream of requests that name none.
    default_stream: StreamId,
    backing: Arc<GuardedDevice<B>>,
    /// Locked before `inner`, by the one thread on a slow path.
    growth: Mutex<()>,
    inner: Mutex<Inner<B>>,
    callbacks: Callbacks,
}

/// The pressure callbacks of an allocator.
#[derive(Default)]
struct Callbacks(Mutex<Vec<Arc<Callback>>>);

type Callback = dyn Fn() -> bool + Send + Sync;

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner<B: DeviceBacking> {
    engine: Engine<B>,
    /// Records without a block, for the next blocks.
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    unused: Vec<Box<Record>>,
}

/// The locked engine, and what a slow path returned for a request.
type Served<'a, B> = (MutexGuard<'a, Inner<B>>, Result<DeviceBlock, DeviceError>);

/// The caller holds the growth lock.
impl<B: DeviceBacking> EngineLock<B> for MutexGuard<'_, Inner<B>> {
    fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<B> {
        &mut self.engine
    }

    fn unlocked(&mut self, act: &mut dyn FnMut()) {
        MutexGuard::unlocked(self, act);
    }
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// Creates an allocator over a device, by the rules of a policy.
    #[must_use]
    pub fn new(backing: B, policy: Policy) -> Self {
        let (name, device, access) = (policy.name.into(), backing.device(), backing.access());
        let engine = Engine::new(backing, policy);
        let backing = Arc::clone(&engine.backing);
        let inner = Mutex::new(Inner { engine, unused: Vec::new() });
        Self {
            name,
            device,
            access,
            default_stream: StreamId::default_of(device),
            backing,
            growth: Mutex::new(()),
            inner,
            callbacks: Callbacks::default(),
        }
    }

    /// Returns the statistics of the engine, under PyTorch's names.
    pub fn device_stats(&self) -> DeviceStats {
        *self.inner.lock().engine.stats()
    }

    /// Calls `inspect` with the engine, under its lock. It waits for a thread that grows or releases memory.
    ///
    /// # Panics
    ///
    /// If `inspect` uses this allocator, other than for a request, which fails with [`Error::Reentrant`].
    pub fn with_engine<R>(&self, inspect: impl FnOnce(&Engine<B>) -> R) -> R {
        let _growing = self.growth.lock();
        inspect(&self.inner.lock().engine)
    }

    /// Calls `act` with the engine on a slow path, and reports regions that changed.
    fn change<R>(&self, act: impl FnOnce(&mut SlowPath<'_, B>) -> R) -> R {
        let growing = self.growth.lock();
        let mut inner = self.inner.lock();
        let result = act(&mut SlowPath::new(&mut inner));
        let delivery = inner.engine.watches.delivery();
        drop(inner);
        drop(growing);
        drop(delivery);
        result
    }

    /// Returns the addresses of the live block that an address lies in.
    ///
    /// The time is proportional to the number of chunks in the block's region.
    #[must_use]
    pub fn block_at(&self, address: usize) -> Option<Range<usize>> {
        let inner = self.inner.lock();
        let block = inner.engine.block_at(address)?;
        let start = inner.engine.address(block);
        Some(start..start + inner.engine.size(block))
    }

    /// [`Engine::retire_stream`]. The engine knows the uses that are recorded on a block
    /// ([`Block::record_stream`](orlop_alloc::Block::record_stream)) when the block is freed. So a block on
    /// which this stream is recorded must be freed before.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change(|engine| engine.retire_stream(self.device_stream(stream)))
    }

    /// [`Engine::empty_cache`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn empty_cache(&self) -> Result<(), DeviceError> {
        self.change(|engine| engine.empty_cache())
    }

    /// [`Engine::loss`].
    #[must_use]
    pub fn loss(&self) -> Option<DeviceError> {
        self.backing.loss().map(DeviceError::from)
    }

    /// [`Engine::empty_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn empty_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.empty_pool(id))
    }

    /// [`Engine::set_memory_fraction`].
    pub fn set_memory_fraction(&self, fraction: f64) {
        self.change(|engine| engine.set_memory_fraction(fraction));
    }

    /// Registers a callback that runs before a request fails. It returns `true` if it freed memory; the
    /// request is then tried again.
    ///
    /// It may free blocks of this allocator or of others: no lock is held. Requests that it makes can call it
    /// again. A panic counts as `false` and is traced. The callback exists as long as the allocator, which
    /// exists as long as its blocks: refer to blocks of this allocator by a [`Weak`](std::sync::Weak).
    pub fn on_pressure(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        self.callbacks.0.lock().push(Arc::new(callback));
    }

    /// [`Engine::begin_allocate_to_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn begin_allocate_to_pool(&self, id: PoolId, streams: StreamFilter) -> Result<(), DeviceError> {
        self.change(|engine| engine.begin_allocate_to_pool(id, streams))
    }

    /// [`Engine::end_allocate_to_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn end_allocate_to_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.end_allocate_to_pool(id))
    }

    /// [`Engine::mark_capture_begin`].
    pub fn mark_capture_begin(&self) {
        self.change(|engine| engine.mark_capture_begin());
    }

    /// [`Engine::mark_capture_end`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn mark_capture_end(&self) -> Result<(), DeviceError> {
        self.change(|engine| engine.mark_capture_end())
    }

    /// [`Engine::adopt_foreign_stream`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn adopt_foreign_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change(|engine| engine.adopt_foreign_stream(self.device_stream(stream)))
    }

    /// [`Engine::release_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn release_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.release_pool(id))
    }

    /// [`Engine::use_pool_on_oom`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn use_pool_on_oom(&self, id: PoolId, allowed: bool) -> Result<(), DeviceError> {
        self.change(|engine| engine.use_pool_on_oom(id, allowed))
    }

    /// Returns the device's stream for a stream of a request or of a use: the host has none on a device.
    #[inline]
    fn device_stream(&self, stream: StreamId) -> StreamId {
        if stream == StreamId::HOST { self.default_stream } else { stream }
    }

    #[cold]
    fn reentrant(&self) -> Error {
        Error::Reentrant { inside: format!("the device allocator {}", self.name).into() }
    }

    /// Allocates a block for a request that no cached memory served. Takes the growth lock; if another thread
    /// has it, the engine is unlocked meanwhile, and that thread may have made room.
    #[cold]
    #[inline(never)]
    fn allocate_slowly<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<B>>,
        mut miss: CacheMiss,
        request: &DeviceRequest,
    ) -> Result<Served<'a, B>> {
        if let CacheMiss::Refused(error) = miss {
            return Ok((inner, Err(error)));
        }
        let growing = match self.growth.try_lock() {
            Some(growing) => growing,
            None => {
                // The streams that have ended are retired at the next new one.
                if let CacheMiss::Crowded(_) = miss {
                    inner.engine.streams.is_crowded = false;
                    miss = match inner.engine.allocate_cached(request) {
                        Ok(block) => return Ok((inner, Ok(block))),
                        Err(miss) => miss,
                    };
                }
                inner.engine.forget_miss(&miss);
                drop(inner);
                // `None`: the call came from the backing.
                let growing = self.growth.lock_unless_held().ok_or_else(|| self.reentrant())?;
                inner = self.inner.lock();
                miss = match inner.engine.allocate_cached(request) {
                    Ok(block) => return Ok((inner, Ok(block))),
                    Err(miss) => miss,
                };
                growing
            }
        };
        let block = SlowPath::new(&mut inner).allocate(&miss);
        drop(growing);
        Ok((inner, block))
    }

    /// Fills a new block with zeros, or frees it. No lock is held: host memory is filled by this thread.
    fn zero(&self, block: DeviceBlock, address: usize, bytes: usize, stream: StreamId) -> Result<()> {
        // SAFETY: a new block of the engine, which has no user yet.
        let zeroed = unsafe { self.backing.zero(address, bytes, stream) };
        let Err(failure) = zeroed else { return Ok(()) };
        let mut inner = self.inner.lock();
        let _returned = inner.engine.noted(zeroed);
        // It cannot fail: the block is live.
        let _freed = inner.engine.free(block);
        Err(match failure.error {
            BackingError::Unsupported => Error::CannotZero { device: self.device },
            _ => DeviceError::from(failure).into(),
        })
    }

    /// Runs all pressure callbacks. Returns `true` if one of them freed memory.
    #[cold]
    fn run_callbacks(&self) -> bool {
        let callbacks = self.callbacks.0.lock().clone();
        // All of them: what one frees may not be enough.
        let call = |callback: &Arc<Callback>| {
            let freed = guarded(|| callback());
            if freed.is_none() {
                trace_guarded(|| tracing::error!(allocator = &*self.name, "a pressure callback panicked"));
            }
            freed.unwrap_or(false)
        };
        callbacks.iter().filter(|callback| call(callback)).count() > 0
    }

    #[cold]
    fn refuse(&self, request: &Request, error: DeviceError) -> Error {
        if !matches!(error, DeviceError::OutOfMemory { .. }) {
            return error.into();
        }
        let mut report = OutOfMemory::new(Refusal::Backing, &self.name, self.device, request);
        if let DeviceError::OutOfMemory { rounded, largest_free, reserved, cached, live, limit, .. } = error {
            (report.largest_free, report.free, report.live) = (largest_free, cached, live);
            (report.reserved, report.limit) = (reserved, Some(limit));
            report.rounded = usize::try_from(rounded).unwrap_or(usize::MAX);
            if reserved.saturating_add(rounded) > limit {
                report.refusal = Refusal::Limit;
            }
        }
        Error::OutOfMemory(Box::new(report))
    }
}

// SAFETY: 1. blocks are live chunks of the engine, which do not overlap; they begin at multiples of the
// granule or of 512, and larger alignments are cut out of blocks that are larger by that many bytes. 2.
// host-accessible backings give initialised memory (their promise). 3. the backing zeroes on the request's
// stream, or the request fails. 4. the engine is behind a lock. 5. records are boxed, and memory is the
// backing's. 6. there is no counter.
unsafe impl<B: DeviceBacking> Allocator for DeviceAllocator<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device)?;
        let long_lived = request.kind == MemoryKind::Persistent;
        // `None`: the call came from `with_engine`, or from the backing.
        let Some(mut inner) = self.inner.lock_unless_held() else { return Err(self.reentrant()) };
        // Regions begin where the device has room: a granule larger than their alignment aligns nothing.
        let aligned = inner.engine.policy().granule.min(REGION_ALIGN);
        let slack = request.align.bytes().saturating_sub(aligned);
        let bytes = request.bytes.saturating_add(slack);
        let stream = self.device_stream(request.stream);
        let sized = DeviceRequest { bytes, stream, long_lived };
        let mut may_retry = request.retry;
        let block = loop {
            let miss = match inner.engine.allocate_cached(&sized) {
                Ok(block) => break block,
                Err(miss) => miss,
            };
            let (locked, served) = self.allocate_slowly(inner, miss, &sized)?;
            let error = match served {
                Ok(block) => {
                    inner = locked;
                    break block;
                }
                Err(error) => error,
            };
            drop(locked);
            let may_help = may_retry && matches!(error, DeviceError::OutOfMemory { .. });
            if !may_help || !self.run_callbacks() {
                return Err(self.refuse(request, error));
            }
            may_retry = false;
            inner = self.inner.lock();
        };
        let (start, size) = (inner.engine.address(block), inner.engine.size(block));
        let unused = inner.unused.pop();
        drop(inner);
        let address = if slack == 0 { start } else { request.align.round_up(start)? };
        if request.zeroed {
            self.zero(block, start, size, stream)?;
        }
        let Some(ptr) = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(address)) else {
            // No region begins at address zero; if one did, the block would be leaked, not handed out.
            return Err(Error::ForeignPointer { address });
        };
        let granted = size - (address - start);
        let mut record =
            unused.unwrap_or_else(|| Box::new(Record::new(ptr, granted, self.device, self.access)));
        (record.ptr, record.granted, record.token) = (ptr, granted, block.token());
        record.assign(request);
        record.stream = stream;
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let own = u32::try_from(block.token).map(DeviceBlock).map_err(|_| foreign(&block))?;
        let mut inner = self.inner.lock();
        if !inner.engine.is_within(own, block.address()) {
            return Err(foreign(&block));
        }
        for stream in block.uses.iter() {
            inner.engine.record_stream(own, self.device_stream(stream)).map_err(|_| foreign(&block))?;
        }
        inner.engine.free(own).map_err(|_| foreign(&block))?;
        // SAFETY: it is a block of this allocator, whose records are boxes.
        inner.unused.push(unsafe { block.into_record() });
        Ok(())
    }

    fn device(&self) -> Device {
        self.device
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        let total = self.backing.memory();
        self.backing.free_memory().map(|free| DeviceMemory { total, free })
    }

    fn semantics(&self) -> Semantics {
        Semantics { stream_ordered: true, ..Semantics::default() }
    }

    fn usage(&self) -> Usage {
        let inner = self.inner.lock();
        let stats = inner.engine.stats();
        Usage {
            reserved: stats.reserved_bytes.all.current,
            peak_reserved: stats.reserved_bytes.all.peak,
            regions: inner.engine.region_count() as u64,
            deferred: stats.active.all.current - stats.allocation.all.current,
            metadata: (inner.engine.metadata() + inner.unused.len() * size_of::<Record>()) as u64,
        }
    }

    fn reset_peak(&self) {
        self.inner.lock().engine.reset_peaks();
    }

    fn trim(&self, target: u64) -> u64 {
        let _growing = self.growth.lock();
        let mut inner = self.inner.lock();
        let before = inner.engine.stats().reserved_bytes.all.current;
        // Failed calls are counted and traced; what does not depend on them is released.
        let _noted = SlowPath::new(&mut inner).trim(target);
        let released = before - inner.engine.stats().reserved_bytes.all.current;
        if released > 0 {
            inner.unused = Vec::new();
        }
        released
    }

    fn describe(&self, report: &mut OutOfMemory) {
        let inner = self.inner.lock();
        report.reserved = inner.engine.stats().reserved_bytes.all.current;
        report.largest_free = inner.engine.largest_free();
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let growing = self.growth.lock();
        let ended = self.inner.lock().engine.watch(watch);
        drop(growing);
        // With the lock released: an observer's end may run anything.
        drop(ended);
    }

    fn verify(&self) -> Result<()> {
        self.with_engine(Engine::verify)
    }
}

#[cold]
fn foreign(block: &RawBlock) -> Error {
    Error::ForeignPointer { address: block.ptr.as_ptr().addr() }
}
