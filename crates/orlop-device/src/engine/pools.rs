//! Pools, which have free chunks by stream, and regions.

use super::SMALL;
use super::chunks::{Chunks, Index};
use super::free_index::FreeChunks;
use crate::policy::{IndexKind, Policy};
use orlop_alloc::engine_support::{FreeChunk, SortedRuns};
use orlop_core::torch::TieRule;
use std::collections::BTreeMap;
use std::ops::Range;

/// Free memory for one class of requests: small or large, of one lifetime, common or private.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The private pool that it belongs to.
    pub(crate) private: Option<u32>,
    /// The number of searches: the clock by which free chunks age.
    pub(crate) searches: u64,
    /// Whether it has chunks, free or without pages, that are in no index: what was left of a private pool
    /// when it was dropped.
    pub(crate) has_forgotten: bool,
    kind: IndexKind,
    ties: TieRule,
    granule: usize,
    /// By stream.
    streams: Vec<StreamPool>,
}

/// The free memory of one stream in a pool.
#[derive(Debug)]
pub(crate) struct StreamPool {
    pub(crate) free: FreeChunks,
    /// Addresses without pages, in order.
    pub(crate) unmapped: SortedRuns<FreeChunk>,
}

/// Returns `true` for a pool of small requests: pools are added in pairs, the small one first.
#[inline(always)]
pub(crate) fn is_small(pool: u16) -> bool {
    pool % 2 == SMALL
}

/// The key of a chunk in an index by address.
pub(crate) fn at(address: usize, chunk: Index) -> FreeChunk {
    FreeChunk { size: 0, address, chunk }
}

impl Pool {
    pub(crate) fn new(private: Option<u32>, kind: IndexKind, policy: &Policy) -> Self {
        let Policy { ties, granule, .. } = *policy;
        Self { private, searches: 0, has_forgotten: false, kind, ties, granule, streams: Vec::new() }
    }

    /// Returns the free memory of a stream; new ones are added.
    #[inline]
    pub(crate) fn stream_mut(&mut self, stream: u32) -> &mut StreamPool {
        let place = stream as usize;
        if place >= self.streams.len() {
            let Self { kind, ties, granule, .. } = *self;
            self.streams.resize_with(place + 1, || StreamPool {
                free: FreeChunks::new(kind, ties, granule),
                unmapped: SortedRuns::default(),
            });
        }
        &mut self.streams[place]
    }

    /// Empties the indexes. What was in them is used again only if it merges with a block that is freed.
    pub(crate) fn forget_free(&mut self) {
        let has_memory = |of: &StreamPool| !of.free.is_empty() || !of.unmapped.is_empty();
        self.has_forgotten |= self.streams.iter().any(has_memory);
        self.streams.clear();
    }

    #[inline]
    pub(crate) fn stream(&self, stream: u32) -> Option<&StreamPool> {
        self.streams.get(stream as usize)
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (u32, &StreamPool)> + '_ {
        (0..).zip(&self.streams)
    }

    /// Returns the free chunks of at least `size` bytes, and perhaps a few smaller ones.
    pub(crate) fn at_least(&self, chunks: &Chunks, size: usize) -> Vec<Index> {
        let mut found = Vec::new();
        for stream in self.streams.iter().filter(|stream| !stream.free.is_empty()) {
            stream.free.add_large(chunks, size, &mut found);
        }
        found
    }

    /// Returns all chunks without pages.
    pub(crate) fn unmapped(&self) -> Vec<Index> {
        let places = self.streams.iter().flat_map(|stream| stream.unmapped.iter());
        places.map(|place| place.chunk).collect()
    }

    /// Returns all free chunks.
    pub(crate) fn free(&self, chunks: &Chunks) -> Vec<Index> {
        self.streams.iter().flat_map(|stream| stream.free.all(chunks)).collect()
    }
}

/// Memory that came from the device in one allocation, or one reservation of addresses for pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) address: usize,
    /// Of a reservation: all of it, with pages or without.
    pub(crate) bytes: usize,
    /// Its lowest chunk.
    pub(crate) first: Index,
    /// The size of its pages; `None` if it came in one allocation.
    pub(crate) page: Option<usize>,
    /// The stream of the request that it was made for.
    pub(crate) stream: u32,
    pub(crate) pool: u16,
}

impl Region {
    /// Returns the pages that lie wholly in a part of it, if there are any.
    pub(crate) fn whole_pages(&self, part: Range<usize>) -> Option<Range<usize>> {
        let page = self.page?;
        let begin = (part.start - self.address).checked_next_multiple_of(page)? + self.address;
        let end = part.end - (part.end - self.address) % page;
        (begin < end).then_some(begin..end)
    }
}

/// The table of regions.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    places: Vec<Option<Region>>,
    vacant: Vec<Index>,
    by_address: BTreeMap<usize, Index>,
}

impl Regions {
    pub(crate) fn insert(&mut self, region: Region) -> Option<Index> {
        let address = region.address;
        let index = match self.vacant.pop() {
            Some(index) => {
                self.places[index as usize] = Some(region);
                index
            }
            None => {
                let index = Index::try_from(self.places.len()).ok()?;
                self.places.push(Some(region));
                index
            }
        };
        self.by_address.insert(address, index);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<Region> {
        let region = self.places.get_mut(index as usize)?.take();
        if let Some(region) = &region {
            // A replay can have two at one address.
            if self.by_address.get(&region.address) == Some(&index) {
                self.by_address.remove(&region.address);
            }
            self.vacant.push(index);
        }
        region
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> Option<&Region> {
        self.places.get(index as usize)?.as_ref()
    }

    /// Returns the region that an address lies in.
    pub(crate) fn around(&self, address: usize) -> Option<&Region> {
        let (_, &index) = self.by_address.range(..=address).next_back()?;
        self.get(index).filter(|region| address - region.address < region.bytes)
    }

    /// Sets the lowest chunk of a region.
    #[inline]
    pub(crate) fn set_first(&mut self, index: Index, chunk: Index) {
        if let Some(Some(region)) = self.places.get_mut(index as usize) {
            region.first = chunk;
        }
    }

    /// Makes all regions of a stream those of another.
    pub(crate) fn change_stream(&mut self, from: u32, to: u32) {
        for region in self.places.iter_mut().flatten().filter(|region| region.stream == from) {
            region.stream = to;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Region)> + '_ {
        (0..).zip(&self.places).filter_map(|(index, region)| Some((index, region.as_ref()?)))
    }
}
