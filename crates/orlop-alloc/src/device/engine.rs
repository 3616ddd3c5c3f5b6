//! The engine: what happens to a request, step by step, and to a block that comes back.
//!
//! It has no lock and no thread of its own; [`DeviceAllocator`](super::DeviceAllocator) puts it behind one. Replays use
//! it bare.

use super::DeviceError;
use super::backing::DeviceBacking;
use super::borders::Borders;
use super::chunks::{Chunk, Chunks, Index, NONE, State};
use super::pending::Pending;
use super::policy::{Growth, Policy};
use super::pool::{Pool, Regions, Streams};
use super::private::PrivatePools;
use super::rounds::Rounds;
use super::shielded::ShieldedDevice;
use super::stats::DeviceStats;
use crate::RegionWatches;
use crate::bfc::{Free, SortedRuns};
use orlop_core::StreamId;
use std::collections::BTreeMap;
use std::fmt;

/// The common pools, in this order; private ones follow.
pub(super) const SMALL: u16 = 0;
pub(super) const LARGE: u16 = 1;
/// For what lives long, where the policy keeps that apart.
const LONG_LIVED: u16 = 2;
const COMMON: u16 = 4;

/// A block of an [`Engine`], by number. It is as good as a pointer: whoever frees it must not use it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceBlock(pub(super) Index);

impl DeviceBlock {
    pub(super) fn token(self) -> usize {
        self.0 as usize
    }
}

/// What is asked of an [`Engine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Bytes.
    pub bytes: usize,
    /// The stream that uses the block first.
    pub stream: StreamId,
    /// Whether it is known to live long.
    pub long_lived: bool,
}

impl Ask {
    /// So many bytes for a stream.
    #[must_use]
    pub fn new(bytes: usize, stream: StreamId) -> Self {
        Self { bytes, stream, long_lived: false }
    }
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// Bytes, rounded.
    pub(super) size: usize,
    pub(super) stream: u32,
    pub(super) pool: u16,
}

/// Best fit with splitting and coalescing for a device, by the rules of a [`Policy`].
///
/// ```
/// use orlop_alloc::device::{Ask, Engine, NullDevice, Policy, TorchConf};
/// use orlop_core::{Device, StreamId};
///
/// let device = NullDevice::new(Device::cuda(0), 8 << 30);
/// let mut engine = Engine::new(device, Policy::torch(&TorchConf::default()));
/// let block = engine.allocate(Ask::new(1000, StreamId::DEFAULT))?;
/// assert_eq!(engine.size(block), 1024);
/// assert_eq!(engine.stats().reserved_bytes.all.current, 2 << 20);
/// engine.free(block)?;
/// # Ok::<(), orlop_alloc::device::DeviceError>(())
/// ```
pub struct Engine<B: DeviceBacking> {
    pub(super) backing: ShieldedDevice<B>,
    pub(super) policy: Policy,
    /// The most bytes that may be held.
    pub(super) limit: Option<u64>,
    pub(super) chunks: Chunks,
    pub(super) regions: Regions,
    pub(super) pools: Vec<Pool>,
    pub(super) streams: Streams,
    pub(super) pending: Pending,
    pub(super) borders: Borders,
    pub(super) private: PrivatePools,
    /// The stream whose large requests are rehearsed, by number; `NONE` if none is.
    pub(super) watched: u32,
    pub(super) rounds: Rounds,
    /// Where it has free chunks, while there is a plan.
    pub(super) free_places: BTreeMap<usize, Index>,
    /// Whether wholly free regions are kept track of: where they go back so that others hold to the peak.
    pub(super) keeps_whole: bool,
    /// Those of the common pools, in order of size.
    pub(super) whole_regions: SortedRuns<Free>,
    /// The chunk that was freed last and is in no index, or `NONE`.
    pub(super) hot: Index,
    pub(super) stats: DeviceStats,
    /// The most bytes that were in use at once, since the engine was new or gave its free memory back: what is held keeps to
    /// that. Whoever resets the peaks in `stats` resets his own figures, not this.
    pub(super) high_water: u64,
    pub(super) callbacks: Vec<Box<dyn FnMut() -> bool + Send>>,
    pub(super) watches: RegionWatches,
}

impl<B: DeviceBacking> Engine<B> {
    /// Over a device, by these rules; sizes in them that are none are rounded up.
    #[must_use]
    pub fn new(backing: B, policy: Policy) -> Self {
        let (policy, backing) = (policy.put_right(), ShieldedDevice::new(backing));
        let pool = |small: bool| {
            let kind = if small { policy.small_index } else { super::policy::IndexKind::Ordered };
            Pool::new(small, None, kind, policy.granule)
        };
        let pools = (0..COMMON).map(|number| pool(number % 2 == SMALL)).collect();
        let fraction = policy.fraction;
        let watched = if policy.beyond.rehearse { 0 } else { NONE };
        let paged = matches!(policy.growth, Growth::Pages { .. }) && backing.has_pages();
        let keeps_whole = policy.beyond.hold_to_peak.is_some() && !paged;
        let mut engine = Self {
            backing,
            policy,
            limit: None,
            chunks: Chunks::default(),
            regions: Regions::default(),
            pools,
            streams: Streams::default(),
            pending: Pending::default(),
            borders: Borders::default(),
            private: PrivatePools::default(),
            watched,
            rounds: Rounds::default(),
            free_places: BTreeMap::new(),
            keeps_whole,
            whole_regions: SortedRuns::default(),
            hot: NONE,
            stats: DeviceStats::default(),
            high_water: 0,
            callbacks: Vec::new(),
            watches: RegionWatches::default(),
        };
        if let Some(fraction) = fraction {
            engine.set_memory_fraction(fraction);
        }
        engine
    }

    /// The rules in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The device.
    #[must_use]
    pub fn backing(&self) -> &B {
        self.backing.inner()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// Peaks start again from where the figures are. What the engine holds does not depend on them: see
    /// [`Beyond::hold_to_peak`](super::Beyond::hold_to_peak).
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// From now on at most this share of the device's memory may be held (PyTorch: `set_per_process_memory_fraction`). From
    /// 1 on there is no limit, as PyTorch has it; below 0 counts as 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size is a size, and PyTorch rounds it so"
    )]
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then(|| (fraction * self.backing.memory() as f64) as u64);
    }

    /// Is called when a request finds no free block, and may free some; says whether it did. It cannot have the engine, which
    /// is borrowed: what it frees may be the device's, or come to the engine later. Those of a
    /// [`DeviceAllocator`](super::DeviceAllocator) can.
    pub fn on_pressure(&mut self, callback: Box<dyn FnMut() -> bool + Send>) {
        self.callbacks.push(callback);
    }

    /// Gets a block.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] with what stands in the way. The engine works on.
    #[inline]
    pub fn allocate(&mut self, ask: Ask) -> Result<DeviceBlock, DeviceError> {
        let stream = self.streams.number(ask.stream);
        if !self.private.is_capturing() {
            self.poll();
        }
        let Some(size) = self.policy.round(ask.bytes) else { return Err(self.refuse(ask, usize::MAX)) };
        let pool = match self.private.captures(ask.stream) {
            None => {
                let class = if size <= self.policy.small_limit { SMALL } else { LARGE };
                if ask.long_lived && self.policy.beyond.by_lifetime { class + LONG_LIVED } else { class }
            }
            Some((small, large)) => {
                if size <= self.policy.small_limit {
                    small
                } else {
                    large
                }
            }
        };
        let search = Search { size, stream, pool };
        if pool == LARGE && stream == self.watched {
            return self.allocate_watched(search, ask);
        }
        self.allocate_anywhere(search, ask)
    }

    /// From where a block fits best.
    #[inline]
    pub(super) fn allocate_anywhere(&mut self, search: Search, ask: Ask) -> Result<DeviceBlock, DeviceError> {
        let Search { size, stream, pool } = search;
        if self.hot != NONE {
            let hot = std::mem::replace(&mut self.hot, NONE);
            let chunk = &self.chunks[hot];
            if chunk.size == size && chunk.stream == stream && chunk.pool == pool {
                return Ok(self.reuse(hot, ask.bytes));
            }
            self.insert_free(hot);
        }
        match self.search(search).or_else(|| self.search_hard(search)) {
            Some(chunk) => {
                let block = self.hand_out(chunk, size, ask.bytes);
                // It may have been another stream's. What remained of it still is.
                self.chunks[block.0].stream = stream;
                Ok(block)
            }
            None => Err(self.refuse(ask, size)),
        }
    }

    /// Notes that a stream uses a block, besides the one that it was made for (PyTorch: `record_stream`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotLive`] if it is no block.
    pub fn record_stream(&mut self, block: DeviceBlock, stream: StreamId) -> Result<(), DeviceError> {
        let index = self.live(block)?;
        let stream = self.streams.number(stream);
        if self.chunks[index].stream != stream {
            self.add_use(index, stream);
        }
        Ok(())
    }

    /// Takes a block back. The stream that it was made for may still run on it, and the others that were recorded.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotLive`] if it is no block; nothing has changed.
    #[inline(always)]
    pub fn free(&mut self, block: DeviceBlock) -> Result<(), DeviceError> {
        let index = self.live(block)?;
        let Chunk { size, pool, note: uses, after: request, .. } = self.chunks[index];
        if request != NONE {
            self.rounds.returned(request);
        }
        let small = self.pools[pool as usize].small;
        self.stats.allocation.sub(small, 1);
        self.stats.allocated_bytes.sub(small, size as u64);
        if size >= self.policy.max_split {
            self.stats.oversize_allocations.sub(1);
        }
        if uses != 0 {
            if self.private.is_capturing() {
                self.chunks[index].state = State::Pending;
                self.pending.unmarked.push(index);
            } else {
                self.mark(index);
            }
        } else if self.policy.beyond.keep_hot {
            self.count_inactive(index);
            let before = std::mem::replace(&mut self.hot, index);
            self.chunks[index].state = State::Hot;
            if before != NONE {
                self.insert_free(before);
            }
        } else {
            self.settle(index);
        }
        Ok(())
    }

    /// Where a block begins.
    #[must_use]
    #[inline]
    pub fn address(&self, block: DeviceBlock) -> usize {
        self.chunks.get(block.0).map_or(0, |chunk| chunk.address)
    }

    /// How many bytes a block has: at least as many as were asked for.
    #[must_use]
    #[inline]
    pub fn size(&self, block: DeviceBlock) -> usize {
        self.chunks.get(block.0).map_or(0, |chunk| chunk.size)
    }

    /// Whether it is a block, and has this address.
    #[inline]
    pub(super) fn is_within(&self, block: DeviceBlock, address: usize) -> bool {
        let within = |chunk: &Chunk| address.wrapping_sub(chunk.address) < chunk.size;
        self.chunks.get(block.0).is_some_and(|chunk| chunk.state == State::Live && within(chunk))
    }

    #[inline]
    pub(super) fn live(&self, block: DeviceBlock) -> Result<Index, DeviceError> {
        match self.chunks.get(block.0) {
            Some(chunk) if chunk.state == State::Live => Ok(block.0),
            _ => Err(DeviceError::NotLive { block: block.0 }),
        }
    }

    /// The chunk that was freed last goes where the others are.
    pub(super) fn cool(&mut self) {
        let hot = std::mem::replace(&mut self.hot, NONE);
        if hot != NONE {
            self.insert_free(hot);
        }
    }

    fn search_hard(&mut self, search: Search) -> Option<Index> {
        // Where nothing can move, what is cut too small stays so: neighbours merge before another stream's chunk is taken.
        if self.keeps_whole
            && self.is_beyond_peak(search, search.size)
            && self.gather_for(search)
            && let Some(chunk) = self.search(search)
        {
            return Some(chunk);
        }
        if self.policy.beyond.steal
            && let Some(chunk) = self.steal(search)
        {
            return Some(chunk);
        }
        let mut freed = false;
        for callback in &mut self.callbacks {
            freed |= callback();
        }
        if freed && let Some(chunk) = self.search(search) {
            return Some(chunk);
        }
        self.collect();
        if let Some(chunk) = self.grow(search, false) {
            return Some(chunk);
        }
        if self.release_oversize(search)
            && let Some(chunk) = self.grow(search, false)
        {
            return Some(chunk);
        }
        if self.private.is_capturing() {
            return None;
        }
        if self.policy.beyond.look_again
            && let Some(chunk) = self.look_again(search)
        {
            return Some(chunk);
        }
        self.release_cached(0);
        self.grow(search, true).or_else(|| self.search_last(search))
    }

    /// What waiting frees may fit; PyTorch gives it back to the device, and fails if that does not help.
    fn look_again(&mut self, search: Search) -> Option<Index> {
        self.wait_for_all();
        let found = self.search(search).or_else(|| self.steal(search));
        found.or_else(|| {
            self.gather(search.stream);
            self.search(search)
                .or_else(|| self.search(self.twin(search)))
                .or_else(|| self.steal(self.twin(search)))
                .or_else(|| self.grow(search, false))
        })
    }

    /// The same in the pool for the other lifetimes.
    fn twin(&self, search: Search) -> Search {
        let pool = if search.pool < COMMON { (search.pool + LONG_LIVED) % COMMON } else { search.pool };
        Search { pool, ..search }
    }

    fn drop_stretch(&self, (address, bytes): (usize, usize), page: usize) {
        if bytes > 0 {
            // SAFETY: all of it is mapped; the engine goes, so nobody has a block, and all streams are done.
            unsafe { self.backing.unmap(address, bytes, page) };
        }
    }

    #[cold]
    fn refuse(&mut self, ask: Ask, size: usize) -> DeviceError {
        self.stats.num_ooms += 1;
        let reserved = self.stats.reserved_bytes.all.current;
        let active = self.stats.active_bytes.all.current;
        DeviceError::OutOfMemory {
            requested: ask.bytes as u64,
            rounded: size as u64,
            live: self.stats.allocated_bytes.all.current,
            pending: active - self.stats.allocated_bytes.all.current,
            reserved,
            cached: reserved - active,
            largest_free: self.largest_free(),
            limit: self.limit.unwrap_or(u64::MAX).min(self.backing.memory()),
        }
    }
}

impl<B: DeviceBacking> Drop for Engine<B> {
    /// Gives all memory back. Whoever has blocks keeps their engine.
    fn drop(&mut self) {
        self.note_all_gone();
        // Blocks came back while their streams ran.
        let running = (0..self.streams.count()).filter(|&stream| !self.finish(stream)).count();
        for event in self.pending.events() {
            self.backing.forget(event);
        }
        if running > 0 {
            // Streams that could not be waited for may use any of it: it is lost, not given back.
            return;
        }
        for (_, region) in self.regions.iter() {
            let Some(page) = region.page else {
                // SAFETY: it came from `allocate` and was not given back; all streams are done.
                unsafe { self.backing.release(region.address, region.bytes) };
                continue;
            };
            // Pages end where chunks do only where there are none behind: stretches, not chunks.
            let mut stretch = (region.address, 0);
            for (_, chunk) in self.chunks.walk(region.first) {
                if chunk.state != State::Unmapped {
                    stretch.1 += chunk.size;
                    continue;
                }
                self.drop_stretch(stretch, page);
                stretch = (chunk.address + chunk.size, 0);
            }
            self.drop_stretch(stretch, page);
            // SAFETY: it came from `reserve_addresses`, whole; its pages are gone.
            unsafe { self.backing.release_addresses(region.address, region.bytes) };
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
