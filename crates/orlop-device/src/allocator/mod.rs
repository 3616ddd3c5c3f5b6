//! The engine behind two locks, as an [`Allocator`].
//!
//! Requests that cached memory serves, frees and figures take the engine's lock, for a short time. What calls
//! the device and may wait takes the growth lock first, and gives up the engine's lock during these calls:
//! see [`SlowPath`].
//!
//! | module | what it holds |
//! |---|---|
//! | `requests` | the way of a request |
//! | `frees` | the way of a free |
//! | `pressure` | what frees memory elsewhere before a request fails |
//! | `thread_cache` | each thread's free blocks, which it gets again without a lock |
//! | `token`, `stream_mark` | what a record says of its block, and of the stream of its next one |
//! | `engine_calls` | calls of the engine that are passed on |

mod engine_calls;
mod frees;
mod pressure;
mod requests;
mod stream_mark;
mod thread_cache;
mod token;

use self::pressure::Callbacks;
use self::stream_mark::StreamMark;
use self::thread_cache::ThreadCaches;
use crate::backing::{CaptureCount, DeviceBacking, GuardedDevice, REGION_ALIGN};
use crate::engine::{Engine, EngineLock, SlowPath};
use crate::error::DeviceError;
use crate::policy::Policy;
use crate::stats::DeviceStats;
use orlop_alloc::engine_support::{EngineScope, RecordSlab};
use orlop_alloc::{
    Allocator, AllocatorRef, DeviceMemory, OutOfMemory, Request, Result, Semantics, Usage,
    engine_support::{RawBlock, RegionWatch},
};
use orlop_core::{Device, StreamId};
use orlop_sync::atomic::AtomicBool;
use orlop_sync::{Mutex, MutexGuard};
use std::ops::Range;
use std::ptr::NonNull;
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
    /// The stream of requests that name none.
    default_stream: StreamId,
    /// Blocks begin at multiples of this many bytes. Regions begin where the device has room: a granule
    /// larger than their alignment aligns nothing.
    aligned: usize,
    backing: Arc<GuardedDevice<B>>,
    /// Locked before `inner`, by the one thread on a slow path.
    growth: Mutex<()>,
    inner: Mutex<Inner<B>>,
    /// Blocks that were freed from inside a call of the device, with the engine locked by the same thread.
    returned: Mutex<Vec<RawBlock>>,
    has_returned: AtomicBool,
    /// Whether the policy has thread caches.
    has_caches: bool,
    caches: ThreadCaches,
    /// The captures of the device, during which nothing is cached.
    captures: CaptureCount,
    callbacks: Callbacks,
}

#[derive(Debug)]
struct Inner<B: DeviceBacking> {
    engine: Engine<B>,
    /// The records of the blocks.
    records: RecordSlab,
    /// The stream of the last block.
    mark: StreamMark,
}

/// The caller holds the growth lock.
impl<B: DeviceBacking> EngineLock<B> for MutexGuard<'_, Inner<B>> {
    fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<B> {
        &mut self.engine
    }

    fn unlocked(&mut self, act: &mut dyn FnMut()) {
        // SAFETY: the guards of an engine are local variables of this crate's functions.
        unsafe { MutexGuard::unlocked(self, act) };
    }
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// Creates an allocator over a device, by the rules of a policy.
    #[must_use]
    pub fn new(backing: B, policy: Policy) -> Self {
        Self::over(Engine::new(backing, policy))
    }

    /// Creates an allocator of an engine.
    pub(crate) fn over(engine: Engine<B>) -> Self {
        let backing = Arc::clone(&engine.backing);
        let (name, device, access) =
            (engine.policy().name.into(), backing.device(), engine.backing().access());
        let aligned = engine.policy().granule.min(REGION_ALIGN);
        let default_stream = StreamId::default_of(device);
        let policy = engine.policy();
        let has_caches = policy.extensions.thread_caches && policy.max_split == usize::MAX;
        let captures = engine.device_captures();
        let (records, mark) = (RecordSlab::new(device, access), StreamMark::new(default_stream));
        let inner = Mutex::new(Inner { engine, records, mark });
        Self {
            name,
            device,
            default_stream,
            aligned,
            backing,
            growth: Mutex::new(()),
            inner,
            returned: Mutex::default(),
            has_returned: AtomicBool::new(false),
            has_caches,
            caches: ThreadCaches::new(has_caches),
            captures,
            callbacks: Callbacks::default(),
        }
    }

    /// Returns the statistics of the engine, under PyTorch's names.
    pub fn device_stats(&self) -> DeviceStats {
        let mut inner = self.lock();
        self.settle(&mut inner);
        inner.engine.stats()
    }

    /// Calls `inspect` with the engine, under its lock. It waits for a thread that grows or releases memory.
    ///
    /// # Panics
    ///
    /// If `inspect` uses this allocator, other than for a request that no cached block serves, which fails
    /// with [`Error::Reentrant`](orlop_alloc::Error::Reentrant), for a free, or to trim it, which releases
    /// nothing.
    pub fn with_engine<R>(&self, inspect: impl FnOnce(&Engine<B>) -> R) -> R {
        let _growing = self.growth.lock();
        let mut inner = self.lock();
        self.drain(&mut inner);
        let _inside = EngineScope::enter();
        inspect(&inner.engine)
    }

    /// Takes both locks. `None`: the call came from `with_engine`, or from the backing.
    fn lock_both(&self) -> Option<(MutexGuard<'_, ()>, MutexGuard<'_, Inner<B>>)> {
        // A thread that has the engine's lock must not wait for the growth lock.
        drop(self.inner.lock_unless_held()?);
        let growing = self.growth.lock_unless_held()?;
        Some((growing, self.lock()))
    }

    /// Calls `act` with the engine on a slow path, and reports regions that changed.
    fn change<R>(&self, act: impl FnOnce(&mut SlowPath<'_, B>) -> R) -> R {
        self.change_locked(|inner| act(&mut SlowPath::new(inner)))
    }

    /// Calls `act` with both locks taken and the caches closed, and reports regions that changed.
    fn change_locked<R>(&self, act: impl FnOnce(&mut MutexGuard<'_, Inner<B>>) -> R) -> R {
        let growing = self.growth.lock();
        let mut inner = self.lock();
        self.close_caches(&mut inner);
        let result = act(&mut inner);
        self.open_caches(&inner);
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
        let mut inner = self.lock();
        self.drain(&mut inner);
        let block = inner.engine.block_at(address)?;
        let start = inner.engine.address(block);
        Some(start..start + inner.engine.size(block))
    }

    /// [`Engine::loss`].
    #[must_use]
    pub fn loss(&self) -> Option<DeviceError> {
        self.backing.loss().map(DeviceError::from)
    }

    /// Returns the device's stream for a stream of a request or of a use: the host has none on a device.
    #[inline]
    fn device_stream(&self, stream: StreamId) -> StreamId {
        if stream == StreamId::HOST { self.default_stream } else { stream }
    }
}

impl<B: DeviceBacking> Drop for DeviceAllocator<B> {
    /// Takes back the blocks that wait for it and those of the caches, before the engine waits for their
    /// streams.
    fn drop(&mut self) {
        let mut inner = self.lock();
        self.drain(&mut inner);
    }
}

// SAFETY: 1. blocks are live chunks of the engine, which do not overlap; they begin at multiples of the
// granule or of 512, and larger alignments are cut out of blocks that are larger by that many bytes. 2.
// host-accessible backings give initialised memory (their promise). 3. the backing zeroes on the request's
// stream, or the request fails. 4. the engine is behind a lock. 5. records are in a slab, which does not
// move them, and memory is the backing's. 6. there is no counter.
unsafe impl<B: DeviceBacking> Allocator for DeviceAllocator<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.serve(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.take_back(block) }
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
        Semantics { stream_ordered: true, completes_alignment: true, ..Semantics::default() }
    }

    fn usage(&self) -> Usage {
        let mut inner = self.lock();
        self.settle(&mut inner);
        let stats = inner.engine.stats();
        Usage {
            reserved: stats.reserved_bytes.all.current,
            peak_reserved: stats.reserved_bytes.all.peak,
            regions: inner.engine.region_count() as u64,
            deferred: stats.active.all.known().saturating_sub(stats.allocation.all.known()),
            metadata: (inner.engine.metadata() + inner.records.bytes()) as u64,
        }
    }

    fn reset_peak(&self) {
        let mut inner = self.lock();
        self.settle(&mut inner);
        inner.engine.reset_peaks();
    }

    fn trim(&self, target: u64) -> u64 {
        let Some((_growing, mut inner)) = self.lock_both() else { return 0 };
        self.drain(&mut inner);
        let before = inner.engine.stats().reserved_bytes.all.current;
        // Failed calls are counted and traced; what does not depend on them is released.
        let _noted = SlowPath::new(&mut inner).trim(target);
        let released = before.saturating_sub(inner.engine.stats().reserved_bytes.all.current);
        if inner.engine.stats().allocation.all.current == 0 {
            inner.records.clear();
        }
        released
    }

    /// Searches the chunks of the block's region.
    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        let address = ptr.as_ptr().addr();
        self.block_at(address).map(|block| block.end - address)
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

    fn on_shared(&self, handle: &AllocatorRef) {
        self.backing.on_shared(handle);
    }

    fn verify(&self) -> Result<()> {
        self.with_engine(Engine::verify)
    }
}
