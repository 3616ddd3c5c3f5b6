//! The engine: best fit with splitting and coalescing over a device, without a lock and without a thread.
//!
//! [`DeviceAllocator`](crate::DeviceAllocator) puts it behind a lock; replays use it without one.
//!
//! | module | what it holds |
//! |---|---|
//! | `ladder` | the way of a request, from the choice of its pool to out of memory |
//! | `free` | the way back of a block |
//! | `pending` | freed blocks that other streams may still use |
//! | `split_merge` | chunks taken out of their index and put back: search, split, merge |
//! | `grow` | new memory: regions, or pages at the end of a range of addresses |
//! | `release` | what is released to the device: by age, for a larger request, or all |
//! | `release_memory` | how: a region, the pages of a chunk, a range |
//! | `reserve_classes` | classes of streams, for the addresses of ranges |
//! | `slow_path` | the engine while the device is called without its lock |
//! | `waste` | the bound of what is reserved in vain |
//! | `whole_regions` | wholly free regions, which are released before the engine grows beyond the peak |
//! | `other_streams` | a chunk of another stream, which the request's stream waits for |
//! | `stream_borders` | free neighbours of different streams, and how they merge |
//! | `private_pools`, `pool_table` | pools of captured graphs; a set of them in PyTorch's order |
//! | `captures` | captures in progress |
//! | `failures` | failed calls of the device |
//! | `chunks`, `free_index` | data: the table of chunks, free chunks by size |
//! | `retire` | streams that end, and foreign ones |
//! | `pools`, `stream_table` | data: pools and regions; the numbers of streams |
//! | `inspect`, `watch` | segments and invariants; region events for observers |

mod captures;
mod chunks;
mod failures;
mod free;
mod free_index;
mod grow;
mod inspect;
mod ladder;
mod other_streams;
mod pending;
mod pool_table;
mod pools;
mod private_pools;
mod release;
mod release_memory;
mod reserve_classes;
mod retire;
mod run_ahead;
mod slow_path;
mod split_merge;
mod stream_borders;
mod stream_table;
mod waste;
mod watch;
mod whole_regions;

pub use self::inspect::{DeviceChunk, DeviceChunkState, DeviceSegment};
pub use self::private_pools::{PoolId, StreamFilter};

pub(crate) use self::chunks::{Chunk, ChunkState, Index, NONE, prefetch};
pub(crate) use self::ladder::CacheMiss;
pub(crate) use self::pools::{Region, at, is_small};
pub(crate) use self::slow_path::{EngineLock, SlowPath};

use self::captures::MarkedCaptures;
use self::chunks::Chunks;
use self::failures::CallFailures;
use self::pending::PendingFrees;
use self::pools::{Pool, Regions};
use self::private_pools::PrivatePools;
use self::stream_borders::StreamBorders;
use self::stream_table::StreamTable;
use self::waste::WasteBound;
use self::whole_regions::WholeRegions;
use crate::backing::{DeviceBacking, GuardedDevice};
use crate::pages::LargePages;
use crate::period::StreamPeriod;
use crate::policy::{Growth, IndexKind, Policy};
use crate::stats::DeviceStats;
use orlop_alloc::engine_support::RegionWatches;
use orlop_core::StreamId;
use orlop_core::torch::TieRule;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// The pool for small requests. The common pools come first; private ones follow.
pub(crate) const SMALL: u16 = 0;
/// The pool for large requests.
pub(crate) const LARGE: u16 = 1;
/// Added to the pool for long-lived blocks, where the policy separates them.
const LONG_LIVED: u16 = 2;
/// The number of common pools.
pub(crate) const COMMON: u16 = 4;

/// A block of an [`Engine`], by number. Like a pointer, it must not be used after the block was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceBlock(pub(crate) Index);

/// A request for a block of an [`Engine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Bytes.
    pub bytes: usize,
    /// The stream that uses the block first.
    pub stream: StreamId,
    /// Whether the block is known to be long-lived.
    pub long_lived: bool,
}

impl DeviceRequest {
    /// Creates a request for `bytes` bytes on `stream`.
    #[must_use]
    pub fn new(bytes: usize, stream: StreamId) -> Self {
        Self { bytes, stream, long_lived: false }
    }
}

/// A request as the engine handles it: rounded, and assigned to a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolRequest {
    /// Bytes, rounded.
    pub(crate) size: usize,
    /// The number of the stream.
    pub(crate) stream: u32,
    pub(crate) pool: u16,
}

/// Best fit with splitting and coalescing for a device, by the rules of a [`Policy`].
///
/// ```
/// use orlop_core::{Device, StreamId};
/// use orlop_device::{DeviceRequest, Engine, NullDevice, Policy, TorchConf};
///
/// let device = NullDevice::new(Device::cuda(0), 8 << 30);
/// let mut engine = Engine::new(device, Policy::torch(&TorchConf::default()));
/// let block = engine.allocate(DeviceRequest::new(1000, StreamId::default_of(Device::cuda(0))))?;
/// assert_eq!(engine.size(block), 1024);
/// assert_eq!(engine.stats().reserved_bytes.all.current, 2 << 20);
/// engine.free(block)?;
/// # Ok::<(), orlop_device::DeviceError>(())
/// ```
pub struct Engine<B: DeviceBacking> {
    pub(crate) backing: Arc<GuardedDevice<B>>,
    pub(crate) policy: Policy,
    /// [`Policy::plain_mask`].
    plain_mask: usize,
    /// The maximum of reserved bytes.
    pub(crate) limit: Option<u64>,
    pub(crate) chunks: Chunks,
    pub(crate) regions: Regions,
    pub(crate) pools: Vec<Pool>,
    pub(crate) streams: StreamTable,
    /// The classes that streams have.
    pub(crate) reserve_classes: HashMap<StreamId, String>,
    pub(crate) pending: PendingFrees,
    pub(crate) borders: StreamBorders,
    pub(crate) private: PrivatePools,
    /// The number of captures in progress.
    captures: MarkedCaptures,
    /// The number of the stream whose large requests are logged to find their period; `NONE` if there is
    /// none.
    pub(crate) watched_stream: u32,
    pub(crate) period: StreamPeriod,
    /// The free chunks of the watched stream by address, while there is a period plan.
    pub(crate) free_by_address: BTreeMap<usize, Index>,
    pub(crate) large_pages: LargePages,
    pub(crate) whole_regions: WholeRegions,
    pub(crate) waste: WasteBound,
    /// The chunk that was freed last and is in no index, or `NONE`.
    pub(crate) last_freed: Index,
    pub(crate) stats: DeviceStats,
    pub(crate) failures: CallFailures,
    /// The peak of active bytes since the engine was new, or released its free memory: the limit of reserved
    /// bytes. Resetting the peaks in `stats` does not reset it.
    pub(crate) high_water: u64,
    pub(crate) callbacks: Vec<Box<dyn FnMut() -> bool + Send>>,
    pub(crate) watches: RegionWatches,
}

impl<B: DeviceBacking> Engine<B> {
    /// Creates an engine over a device, by the rules of a policy. Invalid sizes in the policy are rounded up.
    #[must_use]
    pub fn new(backing: B, policy: Policy) -> Self {
        let backing = Arc::new(GuardedDevice::new(backing));
        let policy = policy.normalized(backing.page_granularity());
        let pool = |number: u16| {
            let kind = if is_small(number) { policy.small_index } else { IndexKind::Ordered };
            Pool::new(None, kind, &policy)
        };
        let pools = (0..COMMON).map(pool).collect();
        let (fraction, plain_mask) = (policy.fraction, policy.plain_mask());
        let watched_stream = if policy.extensions.plan_periods { 0 } else { NONE };
        let paged = matches!(policy.growth, Growth::Pages { .. });
        let keeps_whole_regions = policy.extensions.hold_to_peak.is_some() && !paged;
        let bounds_waste = policy.extensions.bound_waste && keeps_whole_regions;
        let default_stream = StreamId::default_of(backing.device());
        let captures = backing.inner().capture_count();
        let mut engine = Self {
            backing,
            policy,
            plain_mask,
            limit: None,
            chunks: Chunks::default(),
            regions: Regions::default(),
            pools,
            streams: StreamTable::new(default_stream),
            reserve_classes: HashMap::new(),
            pending: PendingFrees::default(),
            borders: StreamBorders::default(),
            private: PrivatePools::default(),
            captures: MarkedCaptures::new(captures),
            watched_stream,
            period: StreamPeriod::default(),
            free_by_address: BTreeMap::new(),
            large_pages: LargePages::default(),
            whole_regions: WholeRegions::new(keeps_whole_regions),
            waste: WasteBound::new(bounds_waste),
            last_freed: NONE,
            stats: DeviceStats::default(),
            failures: CallFailures::default(),
            high_water: 0,
            callbacks: Vec::new(),
            watches: RegionWatches::default(),
        };
        if engine.policy.ties == TieRule::OldestBlock {
            engine.chunks.number_chunks();
        }
        if let Some(fraction) = fraction {
            engine.set_memory_fraction(fraction);
        }
        engine
    }

    /// Returns the policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the device.
    #[must_use]
    pub fn backing(&self) -> &B {
        self.backing.inner()
    }

    /// Returns the allocation statistics.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        self.stats.with_sums()
    }

    /// Resets the peaks in the statistics to the current figures. What the engine reserves does not depend on
    /// them: see [`Extensions::hold_to_peak`](crate::Extensions::hold_to_peak).
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// Limits reserved bytes to a share of the device's memory (PyTorch: `set_per_process_memory_fraction`).
    /// A share of 1 or more is no limit, as in PyTorch; a negative one is 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size is a size; rounded as PyTorch rounds it"
    )]
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then(|| (fraction * self.backing.memory() as f64) as u64);
    }

    /// Limits reserved bytes, in place of a limit that was set before.
    pub fn set_memory_limit(&mut self, bytes: u64) {
        self.limit = Some(bytes);
    }

    /// Registers a callback that runs when no free block fits a request. It returns `true` if it freed
    /// memory; the engine then searches again.
    ///
    /// The callback cannot use the engine, which is borrowed: it frees memory of the device, or blocks that
    /// the engine gets back later. A callback of a [`DeviceAllocator`](crate::DeviceAllocator) can free
    /// blocks of its allocator.
    pub fn on_pressure(&mut self, callback: Box<dyn FnMut() -> bool + Send>) {
        self.callbacks.push(callback);
    }

    /// Returns the address of a block.
    #[must_use]
    #[inline]
    pub fn address(&self, block: DeviceBlock) -> usize {
        self.chunks.get(block.0).map_or(0, |chunk| chunk.address)
    }

    /// Returns the size of a block in bytes: at least the bytes of its request.
    #[must_use]
    #[inline]
    pub fn size(&self, block: DeviceBlock) -> usize {
        self.chunks.get(block.0).map_or(0, |chunk| chunk.size)
    }

    /// Returns the address, the size and the pool of a live block.
    #[inline(always)]
    pub(crate) fn extent(&self, block: DeviceBlock) -> (usize, usize, u16) {
        let chunk = &self.chunks[block.0];
        (chunk.address, chunk.size, chunk.pool)
    }

    /// Returns `true` if a thread may cache a block: it is in a common pool, and its requests are not
    /// searched for a period.
    #[inline(always)]
    pub(crate) fn may_be_cached(&self, block: DeviceBlock) -> bool {
        let Chunk { pool, stream, .. } = self.chunks[block.0];
        pool < COMMON && !(self.period.needs_all && pool == LARGE && stream == self.watched_stream)
    }

    /// Unmaps a run of pages. Returns `false` if that failed.
    fn unmap_run(&self, (address, bytes): (usize, usize), page: usize) -> bool {
        // SAFETY: all of it is mapped; the engine is dropped, so there are no blocks; all streams are done.
        bytes == 0 || unsafe { self.backing.unmap(address, bytes, page) }.is_ok()
    }

    /// Releases a region when the engine is dropped. What cannot be released is leaked; the failures are
    /// traced.
    fn release_at_end(&self, region: &Region) {
        let is_leaked = |chunk: &Chunk| chunk.state == ChunkState::Leaked;
        let Some(page) = region.page else {
            if !self.chunks.get(region.first).is_some_and(is_leaked) {
                // SAFETY: it came from `allocate` and was not released; all streams are done.
                let _traced = unsafe { self.backing.release(region.address, region.bytes) };
            }
            return;
        };
        // Pages end where chunks do only before a chunk without pages: runs of pages are unmapped, not
        // chunks.
        let mut run = (region.address, 0);
        let mut is_empty = true;
        for (_, chunk) in self.chunks.walk(region.first) {
            if !matches!(chunk.state, ChunkState::Unmapped | ChunkState::Leaked) {
                run.1 += chunk.size;
                continue;
            }
            is_empty &= self.unmap_run(run, page) && !is_leaked(chunk);
            run = (chunk.address + chunk.size, 0);
        }
        is_empty &= self.unmap_run(run, page);
        if is_empty {
            // SAFETY: it came from `reserve_addresses`, whole; its pages are gone.
            let _traced = unsafe { self.backing.release_addresses(region.address, region.bytes) };
        }
    }
}

impl<B: DeviceBacking> Drop for Engine<B> {
    /// Releases all memory. Blocks keep their engine, so there are none.
    fn drop(&mut self) {
        self.note_all_gone();
        // Blocks were freed while their streams ran.
        let is_capturing = self.is_capturing();
        let is_running = |stream: &StreamId| is_capturing || self.backing.finish(*stream).is_err();
        let mut running = self.streams.existing().filter(is_running).count();
        for (event, stream) in self.pending.events() {
            // Nothing can be recorded in a stream that has ended, but its events can be waited for.
            let is_over = self.streams.is_retired(stream) || self.streams.is_foreign(stream);
            let waited = is_over && !is_capturing && self.backing.synchronize(event).is_ok();
            running += usize::from(is_over && !waited);
            if !waited {
                self.backing.forget(event);
            }
        }
        // Foreign streams in which no event could be recorded.
        let users = self.pending.unawaited().flat_map(|chunk| self.users(chunk));
        let mut foreign: Vec<u32> = users.filter(|&user| self.streams.is_foreign(user)).collect();
        foreign.sort_unstable();
        foreign.dedup();
        running += foreign.into_iter().filter(|&user| is_running(&self.streams.id(user))).count();
        if running > 0 || self.is_lost() {
            // Streams that could not be waited for may use any of it: it is leaked, not released.
            return;
        }
        for (_, region) in self.regions.iter() {
            self.release_at_end(region);
        }
    }
}

impl<B: DeviceBacking> fmt::Debug for Engine<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backing", &self.backing)
            .field("policy", &self.policy.name)
            .field("reserved", &self.stats.reserved_bytes.all.current)
            .finish_non_exhaustive()
    }
}
