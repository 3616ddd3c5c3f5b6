//! Inspection: segments as PyTorch's snapshots show them, totals, and the check of the invariants.

use super::chunks::{Chunk, ChunkState, Index, NONE};
use super::private_pools::PoolId;
use crate::backing::DeviceBacking;
use crate::engine::{DeviceBlock, Engine, is_small};
use orlop_alloc::{Error, Result};
use orlop_core::StreamId;
use std::collections::HashSet;

/// A contiguous range of reserved memory with its chunks: a segment of PyTorch's snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSegment {
    /// Its address.
    pub address: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The stream of the request that it was made for.
    pub stream: StreamId,
    /// Whether it serves small requests.
    pub small: bool,
    /// Whether it is part of a range that grows in place.
    pub expandable: bool,
    /// The private pool that it belongs to; (0, 0) is none.
    pub pool: PoolId,
    /// Its chunks, in order of address.
    pub chunks: Vec<DeviceChunk>,
}

/// A chunk of a [`DeviceSegment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceChunk {
    /// Its address.
    pub address: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The bytes of its request; of a free chunk, of its last one.
    pub requested: usize,
    /// Its state.
    pub state: DeviceChunkState,
}

/// The state of a [`DeviceChunk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceChunkState {
    /// In a block.
    Live,
    /// Freed, while a stream may still use it.
    Pending,
    /// Free.
    Free,
    /// Its release failed: it stays reserved and is never used again.
    Leaked,
}

impl<B: DeviceBacking> Engine<B> {
    /// Returns all reserved memory, in order of address. A range that grows in place is a segment for each
    /// run of pages.
    #[must_use]
    pub fn segments(&self) -> Vec<DeviceSegment> {
        let mut segments = Vec::new();
        for (_, region) in self.regions.iter() {
            let mut open: Option<DeviceSegment> = None;
            for (_, chunk) in self.chunks.walk(region.first) {
                let state = match chunk.state {
                    ChunkState::Live => DeviceChunkState::Live,
                    ChunkState::Pending => DeviceChunkState::Pending,
                    ChunkState::Free | ChunkState::LastFreed | ChunkState::Claimed => DeviceChunkState::Free,
                    ChunkState::Leaked => DeviceChunkState::Leaked,
                    ChunkState::Unmapped | ChunkState::Vacant => {
                        segments.extend(open.take());
                        continue;
                    }
                };
                let pool = &self.pools[region.pool as usize];
                let segment = open.get_or_insert_with(|| DeviceSegment {
                    address: chunk.address,
                    bytes: 0,
                    stream: self.streams.id(region.stream),
                    small: is_small(region.pool),
                    expandable: region.page.is_some(),
                    pool: pool.private.and_then(|place| self.private.id(place)).unwrap_or_default(),
                    chunks: Vec::new(),
                });
                segment.bytes += chunk.size;
                let Chunk { address, size, requested, .. } = *chunk;
                segment.chunks.push(DeviceChunk { address, bytes: size, requested, state });
            }
            segments.extend(open);
        }
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// Returns the live block that an address lies in. The time is proportional to the number of chunks in
    /// its region.
    #[must_use]
    pub fn block_at(&self, address: usize) -> Option<DeviceBlock> {
        let region = self.regions.around(address)?;
        let mut chunks = self.chunks.walk(region.first);
        let (index, chunk) = chunks.find(|(_, chunk)| address - chunk.address < chunk.size)?;
        (chunk.state == ChunkState::Live).then_some(DeviceBlock(index))
    }

    /// Returns the number of regions, and of reservations that have pages.
    #[must_use]
    pub(crate) fn region_count(&self) -> usize {
        let has_memory =
            |first| self.chunks.walk(first).any(|(_, chunk)| chunk.state != ChunkState::Unmapped);
        self.regions.iter().filter(|(_, region)| has_memory(region.first)).count()
    }

    /// Returns the size of the largest free chunk, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.max_free(|_| true)
    }

    /// Returns the size of the largest free chunk of the common pools, which a request is served from before
    /// it fails, if the policy [searches after a wait](crate::Extensions::search_after_wait).
    #[must_use]
    pub fn largest_fit(&self) -> u64 {
        self.max_free(|chunk| self.pools[chunk.pool as usize].private.is_none())
    }

    fn max_free(&self, condition: impl Fn(&Chunk) -> bool) -> u64 {
        let is_free = |chunk: &Chunk| matches!(chunk.state, ChunkState::Free | ChunkState::LastFreed);
        let free = self.chunks.iter().filter(|(_, chunk)| is_free(chunk) && condition(chunk));
        free.map(|(_, chunk)| chunk.size as u64).max().unwrap_or(0)
    }

    /// Returns the bytes of the pages that lie wholly in free chunks of the common pools: those that can
    /// move.
    #[must_use]
    pub fn whole_free_pages(&self) -> u64 {
        self.sources(self.page(0)).iter().map(|&(_, pages)| pages.bytes as u64).sum()
    }

    /// Returns the bytes of the engine's metadata.
    #[must_use]
    pub fn metadata(&self) -> usize {
        let places = self.free_by_address.len() * size_of::<(usize, Index)>();
        self.chunks.bytes()
            + self.streams.bytes()
            + self.borders.bytes()
            + self.period.bytes()
            + self.large_pages.bytes()
            + places
    }

    /// Verifies the invariants of the crate by walking all metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with the rule that is broken.
    pub fn verify(&self) -> Result<()> {
        let rule = |holds: bool, rule: &'static str| {
            if holds { Ok(()) } else { Err(Error::Corrupt { address: 0, rule }) }
        };
        let mut seen = 0;
        let (mut reserved, mut live, mut active, mut leaked) = (0, 0, 0, 0);
        for (number, region) in self.regions.iter() {
            let (mut at, mut before) = (region.address, NONE);
            for (index, chunk) in self.chunks.walk(region.first) {
                rule(chunk.address == at && chunk.previous == before, "chunks cover their region in order")?;
                rule(chunk.region == number && chunk.size > 0, "chunks know their region")?;
                rule(chunk.state != ChunkState::Unmapped || region.page.is_some(), "only ranges lack pages")?;
                if let Some(other) = self.chunks.get(before) {
                    let same = other.state == chunk.state && other.stream == chunk.stream;
                    let mergeable = matches!(chunk.state, ChunkState::Free | ChunkState::Unmapped);
                    rule(!(same && mergeable && other.pool == chunk.pool), "free neighbours are merged")?;
                    let free = other.state == ChunkState::Free && chunk.state == ChunkState::Free;
                    let touch = free && other.pool == chunk.pool;
                    rule(!touch || other.border || chunk.border, "free neighbours of two streams are known")?;
                }
                let bytes = chunk.size as u64;
                reserved += if chunk.state == ChunkState::Unmapped { 0 } else { bytes };
                leaked += if chunk.state == ChunkState::Leaked { bytes } else { 0 };
                live += if chunk.state == ChunkState::Live { bytes } else { 0 };
                active +=
                    if matches!(chunk.state, ChunkState::Live | ChunkState::Pending) { bytes } else { 0 };
                (at, before) = (at + chunk.size, index);
                seen += 1;
            }
            rule(at == region.address + region.bytes, "chunks cover their region to its end")?;
        }
        rule(seen == self.chunks.iter().count(), "every chunk is in a region")?;
        rule(reserved == self.stats.reserved_bytes.all.current, "reserved bytes are those of the regions")?;
        rule(live == self.stats.allocated_bytes.all.current, "live bytes are those of the blocks")?;
        rule(active == self.stats.active_bytes.all.current, "active bytes are live or pending")?;
        rule(leaked == self.stats.leaked_bytes, "leaked bytes are those of the failed releases")?;
        rule(self.stats.num_corrupt_releases == 0, "only wholly free regions are released")?;
        self.verify_indexes(&rule)
    }

    fn verify_indexes(&self, rule: &dyn Fn(bool, &'static str) -> Result<()>) -> Result<()> {
        let mut indexed: HashSet<Index> = HashSet::new();
        for (number, pool) in (0_u16..).zip(&self.pools) {
            for (stream, of) in pool.streams() {
                let is_empty = of.free.is_empty() && of.unmapped.iter().next().is_none();
                rule(is_empty || !self.streams.is_vacant(stream), "a vacant number has no memory")?;
                let free = of.free.all(&self.chunks).into_iter().map(|index| (index, ChunkState::Free));
                let unmapped = of.unmapped.iter().map(|place| (place.chunk, ChunkState::Unmapped));
                for (index, state) in free.chain(unmapped) {
                    let chunk = &self.chunks[index];
                    rule(chunk.state == state, "indexes have free chunks, or chunks without pages")?;
                    rule(chunk.pool == number && chunk.stream == stream, "chunks are in their own index")?;
                    rule(indexed.insert(index), "no chunk is in an index twice")?;
                }
            }
        }
        let is_free = |index: Index, chunk: &Chunk| {
            let is_forgotten = self.pools[usize::from(chunk.pool)].has_forgotten && !indexed.contains(&index);
            matches!(chunk.state, ChunkState::Free | ChunkState::Unmapped) && !is_forgotten
        };
        let free = self.chunks.iter().filter(|&(index, chunk)| is_free(index, chunk));
        rule(free.count() == indexed.len(), "every free chunk is in an index")?;
        let whole = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.state == ChunkState::Free && self.is_whole_region(chunk));
        let whole: HashSet<Index> = whole.map(|(index, _)| index).collect();
        let kept: Vec<Index> = self.whole_regions.iter().collect();
        rule(kept.len() == whole.len(), "wholly free regions are in their index once")?;
        rule(kept.iter().all(|index| whole.contains(index)), "only wholly free regions are in that index")?;
        let bytes: u64 = kept.iter().map(|&index| self.chunks[index].size as u64).sum();
        rule(bytes == self.whole_regions.bytes(), "the bytes of wholly free regions add up")?;
        let listed: HashSet<Index> = self.borders.list().iter().copied().collect();
        let mut flagged = self.chunks.iter().filter(|(_, chunk)| chunk.border);
        rule(flagged.all(|(index, _)| listed.contains(&index)), "flagged borders are in the list")?;
        let mut places = 0;
        for (&address, &index) in &self.free_by_address {
            let chunk = &self.chunks[index];
            rule(
                chunk.address == address && chunk.state == ChunkState::Free,
                "free places are of free chunks",
            )?;
            places += 1;
        }
        let tracked = |chunk: &Chunk| chunk.state == ChunkState::Free && self.tracks_address(chunk);
        let free = self.chunks.iter().filter(|(_, chunk)| tracked(chunk));
        rule(places == free.count(), "free chunks of the watched stream have their places")
    }
}
