//! Restores an engine in the middle of a run: with the segments of a snapshot, over the simulated device.
//!
//! A snapshot does not show the addresses that a range can still grow into. So its lowest segment (of those
//! that grow in place, of one pool and stream) is taken for the start of the range; the range is as long as
//! PyTorch makes them, or ends at the next other segment.

use super::addresses::LAST_ADDRESS;
use super::null_device::NullDevice;
use crate::engine::PoolId;
use crate::engine::Region;
use crate::engine::{Chunk, ChunkState, Index, NONE};
use crate::engine::{DeviceBlock, Engine, LARGE, SMALL};
use crate::engine::{DeviceChunk, DeviceChunkState, DeviceSegment};
use crate::error::DeviceError;
use crate::policy::Growth;
use orlop_core::StreamId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The blocks of a restored engine, by address.
type Blocks = HashMap<usize, DeviceBlock>;

/// The properties that are the same for all segments of one range.
type Range = (StreamId, bool, PoolId);

/// A segment, with its address.
type Start<'a> = (usize, &'a DeviceSegment);

/// A chunk to restore: a segment's, or addresses without pages.
#[derive(Debug, Clone, Copy)]
enum RestoredChunk {
    Of(DeviceChunk),
    Unmapped { address: usize, bytes: usize },
}

impl RestoredChunk {
    fn place(self) -> (usize, usize) {
        match self {
            Self::Of(part) => (part.address, part.bytes),
            Self::Unmapped { address, bytes } => (address, bytes),
        }
    }
}

impl Engine<NullDevice> {
    /// Restores segments as they are, and returns their blocks by address. Pending chunks are restored as
    /// free ones.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotNew`] if the engine has memory, [`DeviceError::BadSegment`] for segments that are
    /// not consistent. The engine is then unchanged.
    pub fn restore(&mut self, segments: &[DeviceSegment]) -> Result<Blocks, DeviceError> {
        if self.regions.iter().next().is_some() {
            return Err(DeviceError::NotNew);
        }
        check(segments, self.backing.memory().saturating_sub(self.backing.inner().used()))?;
        let mut blocks = Blocks::new();
        let mut ranges: BTreeMap<Range, Vec<&DeviceSegment>> = BTreeMap::new();
        let paged = matches!(self.policy.growth, Growth::Pages { .. });
        for segment in segments {
            if segment.expandable && paged {
                ranges.entry(range_of(segment)).or_default().push(segment);
            } else {
                self.restore_alone(segment, &mut blocks)?;
            }
        }
        let mut starts: Vec<Start> = segments.iter().map(|segment| (segment.address, segment)).collect();
        starts.sort_unstable_by_key(|&(address, _)| address);
        for range in ranges.into_values() {
            self.restore_range(range, &starts, &mut blocks)?;
        }
        Ok(blocks)
    }

    fn restore_alone(&mut self, segment: &DeviceSegment, blocks: &mut Blocks) -> Result<(), DeviceError> {
        let chunks: Vec<RestoredChunk> = segment.chunks.iter().copied().map(RestoredChunk::Of).collect();
        self.restore_region(segment, segment.bytes, None, &chunks, blocks)
    }

    /// Restores the segments of one range, or each for itself if they are not whole pages of one.
    fn restore_range(
        &mut self,
        mut segments: Vec<&DeviceSegment>,
        starts: &[Start<'_>],
        blocks: &mut Blocks,
    ) -> Result<(), DeviceError> {
        segments.sort_unstable_by_key(|segment| segment.address);
        let (Some(&first), Some(&last)) = (segments.first(), segments.last()) else { return Ok(()) };
        let page = self.page(if first.small { SMALL } else { LARGE });
        let memory = usize::try_from(self.backing.memory()).unwrap_or(usize::MAX / 4);
        // The range ends at the next segment that is not part of it.
        let behind = &starts[starts.partition_point(|&(address, _)| address <= first.address)..];
        let is_other = |other: &DeviceSegment| !other.expandable || range_of(other) != range_of(first);
        let next = behind.iter().find(|&&(_, other)| is_other(other)).map(|&(address, _)| address);
        let room = next.unwrap_or(LAST_ADDRESS) - first.address;
        let max = memory.saturating_add(memory / 8).min(room);
        let bytes = max - max % page;
        let in_pages = |segment: &&DeviceSegment| {
            (segment.address - first.address).is_multiple_of(page) && segment.bytes.is_multiple_of(page)
        };
        if !segments.iter().all(in_pages) || last.address + last.bytes > first.address + bytes {
            return segments.into_iter().try_for_each(|segment| self.restore_alone(segment, blocks));
        }
        let mut chunks = Vec::new();
        let mut at = first.address;
        for segment in segments {
            if segment.address > at {
                chunks.push(RestoredChunk::Unmapped { address: at, bytes: segment.address - at });
            }
            chunks.extend(segment.chunks.iter().copied().map(RestoredChunk::Of));
            at = segment.address + segment.bytes;
        }
        let end = first.address + bytes;
        if end > at {
            chunks.push(RestoredChunk::Unmapped { address: at, bytes: end - at });
        }
        self.restore_region(first, bytes, Some(page), &chunks, blocks)
    }

    fn restore_region(
        &mut self,
        like: &DeviceSegment,
        bytes: usize,
        page: Option<usize>,
        chunks: &[RestoredChunk],
        blocks: &mut Blocks,
    ) -> Result<(), DeviceError> {
        let DeviceSegment { address, stream, small, .. } = *like;
        let mapped = chunks.iter().filter(|part| matches!(part, RestoredChunk::Of(_)));
        let reserved: usize = mapped.map(|chunk| chunk.place().1).sum();
        // After the checks these do not fail.
        let no_room = DeviceError::BadSegment { address, problem: "there is no room for it" };
        let pool = self.pool_of(like)?;
        if !self.backing.inner().occupy(address, bytes, reserved) {
            return Err(no_room);
        }
        let stream = self.streams.number(stream);
        let region = Region { address, bytes, first: NONE, page, stream, pool };
        let region = self.regions.insert(region).ok_or(no_room)?;
        self.chunks.add_region(region, address, bytes);
        if page.is_none() {
            self.stats.segment.add(small, 1);
            if bytes >= self.policy.max_split {
                self.stats.oversize_segments.add(1);
            }
        }
        self.stats.reserved_bytes.add(small, reserved as u64);
        let mut previous = NONE;
        let mut free: Vec<Index> = Vec::new();
        for &part in chunks {
            let (address, size) = part.place();
            let chunk = Chunk::new(region, pool, stream, address, size, ChunkState::Live);
            let index = self.chunks.insert(Chunk { previous, ..chunk }).ok_or(no_room)?;
            match previous {
                NONE => self.regions.set_first(region, index),
                previous => self.chunks[previous].next = index,
            }
            previous = index;
            match part {
                RestoredChunk::Of(part) if part.state == DeviceChunkState::Live => {
                    self.reuse(index, part.requested);
                    blocks.insert(address, DeviceBlock(index));
                }
                RestoredChunk::Of(part) => {
                    self.chunks[index].requested = part.requested;
                    free.push(index);
                }
                RestoredChunk::Unmapped { .. } => {
                    self.chunks[index].state = ChunkState::Unmapped;
                    self.put_unmapped(index);
                }
            }
        }
        for index in free {
            // It may have merged with the one before it.
            if self.chunks[index].state == ChunkState::Live {
                self.insert_free(index);
            }
        }
        Ok(())
    }

    /// Returns the pool of a segment. Private ones are created, and have a user.
    fn pool_of(&mut self, segment: &DeviceSegment) -> Result<u16, DeviceError> {
        if segment.pool == PoolId::default() {
            return Ok(if segment.small { SMALL } else { LARGE });
        }
        let (small, large) = self.private_pools(segment.pool)?;
        Ok(if segment.small { small } else { large })
    }
}

/// The maximum of private pools in segments: an engine numbers its pools in 16 bits, two for each.
const MAX_POOLS: usize = 1 << 14;

/// Refuses segments that cannot be the state of a device of `memory` bytes.
fn check(segments: &[DeviceSegment], memory: u64) -> Result<(), DeviceError> {
    let mut total = 0_u64;
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(segments.len());
    let mut pools: BTreeSet<PoolId> = BTreeSet::new();
    for segment in segments {
        let address = segment.address;
        let refuse = |problem| DeviceError::BadSegment { address, problem };
        let end = end(segment).ok_or_else(|| refuse("its chunks do not cover it"))?;
        if end > LAST_ADDRESS {
            return Err(refuse("its addresses are too great"));
        }
        let is_live = |part: &&DeviceChunk| part.state == DeviceChunkState::Live;
        if segment.chunks.iter().filter(is_live).any(|part| part.requested > part.bytes) {
            return Err(refuse("a block is smaller than what was requested"));
        }
        let sum = total.checked_add(segment.bytes as u64).filter(|&sum| sum <= memory);
        total = sum.ok_or_else(|| refuse("the device has less memory"))?;
        places.push((address, end));
        pools.insert(segment.pool);
    }
    if pools.len() > MAX_POOLS {
        return Err(DeviceError::TooManyPools);
    }
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(DeviceError::BadSegment { address: pair[1].0, problem: "it overlaps another" }),
        None => Ok(()),
    }
}

fn range_of(segment: &DeviceSegment) -> Range {
    (segment.stream, segment.small, segment.pool)
}

/// Returns the end of a segment, if its chunks cover it in order.
fn end(segment: &DeviceSegment) -> Option<usize> {
    let end = segment.chunks.iter().try_fold(segment.address, |at, part| {
        if part.address == at && part.bytes > 0 { at.checked_add(part.bytes) } else { None }
    });
    end.filter(|&end| end > segment.address && Some(end) == segment.address.checked_add(segment.bytes))
}
