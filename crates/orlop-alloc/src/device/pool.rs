//! Pools, the regions behind them, and the streams that they are divided by.

use super::chunks::{Chunks, Index};
use super::index::FreeChunks;
use super::policy::IndexKind;
use crate::bfc::{Free, SortedRuns};
use orlop_core::StreamId;
use std::ops::Range;

/// Free memory for requests of one sort.
#[derive(Debug)]
pub(super) struct Pool {
    /// Whether it serves small requests.
    pub(super) small: bool,
    /// The private pool that it is part of.
    pub(super) private: Option<u32>,
    /// How often it was searched; the clock by which blocks grow old.
    pub(super) searches: u64,
    kind: IndexKind,
    granule: usize,
    /// By stream.
    streams: Vec<OfStream>,
}

/// What a pool has for one stream.
#[derive(Debug)]
pub(super) struct OfStream {
    pub(super) free: FreeChunks,
    /// Addresses without pages, in order.
    pub(super) unmapped: SortedRuns<Free>,
}

/// Addresses that are in order of size as free chunks are, in order of place.
pub(super) fn at(address: usize, chunk: Index) -> Free {
    Free { size: 0, address, chunk }
}

impl Pool {
    pub(super) fn new(small: bool, private: Option<u32>, kind: IndexKind, granule: usize) -> Self {
        Self { small, private, searches: 0, kind, granule, streams: Vec::new() }
    }

    /// What is there for a stream.
    #[inline]
    pub(super) fn of(&mut self, stream: u32) -> &mut OfStream {
        let place = stream as usize;
        if place >= self.streams.len() {
            let (kind, granule) = (self.kind, self.granule);
            self.streams.resize_with(place + 1, || OfStream {
                free: FreeChunks::new(kind, granule),
                unmapped: SortedRuns::default(),
            });
        }
        &mut self.streams[place]
    }

    #[inline]
    pub(super) fn get(&self, stream: u32) -> Option<&OfStream> {
        self.streams.get(stream as usize)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = (u32, &OfStream)> + '_ {
        (0..).zip(&self.streams)
    }

    /// Free chunks of at least so many bytes, and perhaps a few smaller ones.
    pub(super) fn at_least(&self, chunks: &Chunks, size: usize) -> Vec<Index> {
        self.streams.iter().flat_map(|stream| stream.free.large(chunks, size)).collect()
    }

    /// All chunks without pages.
    pub(super) fn unmapped(&self) -> Vec<Index> {
        let places = self.streams.iter().flat_map(|stream| stream.unmapped.iter());
        places.map(|place| place.chunk).collect()
    }

    /// All free chunks.
    pub(super) fn free(&self, chunks: &Chunks) -> Vec<Index> {
        self.streams.iter().flat_map(|stream| stream.free.all(chunks)).collect()
    }
}

/// What was gained from the device in one piece, or set aside as one range of addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    pub(super) address: usize,
    /// Of a range of addresses: all of it, with pages or without.
    pub(super) bytes: usize,
    /// The chunk that it begins with.
    pub(super) first: Index,
    /// The size of its pages; `None` if it is one piece.
    pub(super) page: Option<usize>,
    /// The stream that it was made for.
    pub(super) stream: u32,
    pub(super) pool: u16,
}

impl Region {
    /// The pages that lie wholly in a part of it, if it has any.
    pub(super) fn whole_pages(&self, part: Range<usize>) -> Option<Range<usize>> {
        let page = self.page?;
        let begin = (part.start - self.address).checked_next_multiple_of(page)? + self.address;
        let end = part.end - (part.end - self.address) % page;
        (begin < end).then_some(begin..end)
    }
}

/// Regions by number.
#[derive(Debug, Default)]
pub(super) struct Regions {
    places: Vec<Option<Region>>,
    vacant: Vec<Index>,
}

impl Regions {
    pub(super) fn insert(&mut self, region: Region) -> Option<Index> {
        if let Some(index) = self.vacant.pop() {
            self.places[index as usize] = Some(region);
            return Some(index);
        }
        let index = Index::try_from(self.places.len()).ok()?;
        self.places.push(Some(region));
        Some(index)
    }

    pub(super) fn remove(&mut self, index: Index) -> Option<Region> {
        let region = self.places.get_mut(index as usize)?.take();
        if region.is_some() {
            self.vacant.push(index);
        }
        region
    }

    #[inline]
    pub(super) fn get(&self, index: Index) -> Option<&Region> {
        self.places.get(index as usize)?.as_ref()
    }

    /// The region begins with this chunk now.
    #[inline]
    pub(super) fn begins(&mut self, index: Index, chunk: Index) {
        if let Some(Some(region)) = self.places.get_mut(index as usize) {
            region.first = chunk;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Index, &Region)> + '_ {
        (0..).zip(&self.places).filter_map(|(index, region)| Some((index, region.as_ref()?)))
    }
}

/// Streams by small numbers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ids: Vec<StreamId>,
    last: u32,
}

impl Streams {
    /// The number of a stream; programs have few, and mostly ask for the same again.
    #[inline]
    pub(super) fn number(&mut self, stream: StreamId) -> u32 {
        if self.ids.get(self.last as usize) == Some(&stream) {
            return self.last;
        }
        let place = self.ids.iter().position(|&id| id == stream).unwrap_or_else(|| {
            self.ids.push(stream);
            self.ids.len() - 1
        });
        // Handles of 2^32 streams would fill the memory first.
        self.last = u32::try_from(place).unwrap_or(0);
        self.last
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(super) fn id(&self, number: u32) -> StreamId {
        self.ids.get(number as usize).copied().unwrap_or_default()
    }
}
