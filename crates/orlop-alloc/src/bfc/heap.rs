//! The heap: regions cut into chunks, and an index of the free chunks. It is single-threaded and has no
//! backing: the engine around it locks it and obtains memory.
//!
//! # Invariants
//!
//! 1. The chunks of a region, linked by `previous` and `next`, cover it without gap or overlap, in order of
//!    address; the region's map finds each by its start address.
//! 2. Every free chunk is in the index exactly once; no chunk in use is.
//! 3. No two neighbours are both free, unless one of them waits for its stamp to become safe.
//! 4. `live` is the sum of the sizes of chunks in use, `reserved` the sum of the regions less discarded
//!    pages.
//!
//! [`Heap::verify`] checks them by walking all chunks.

use super::bins::{Bins, FreeIndex};
use super::chunks::{Chunk, Index, NONE, RegionMap, Regions, Slab};
use super::policy::BfcPolicy;
use super::stamps::Stamps;
use super::watch::WatchedRegions;
use crate::{Access, Error, LookupResult, RawBlock, Record, Request, Result};
use orlop_core::{Alignment, Device};

/// A request to the heap.
#[derive(Debug)]
pub(crate) struct HeapRequest<'a> {
    pub(crate) request: &'a Request,
    /// Bytes to find: a multiple of the granule.
    pub(crate) rounded: usize,
}

impl<'a> HeapRequest<'a> {
    /// Rounds the request up to `granule`.
    #[inline]
    pub(crate) fn new(request: &'a Request, granule: Alignment) -> Result<Self> {
        Ok(Self { rounded: granule.round_up(request.bytes.max(1))?, request })
    }
}

/// A block that the heap handed out.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    pub(crate) block: RawBlock,
    /// Only the first `dirty` bytes may be nonzero.
    pub(crate) dirty: usize,
}

/// What growth changed in the heap.
#[derive(Debug)]
pub(crate) enum GrowthOutcome {
    /// Chunks inside the heap were merged: the search is worth repeating.
    Retry,
    /// A new region.
    NewRegion(RegionMap),
    /// A region that grows in place now has `bytes` bytes.
    Extended { region: Index, bytes: usize },
}

/// Regions, chunks, and the index of the free ones.
#[derive(Debug)]
pub(crate) struct Heap<I = Bins> {
    pub(crate) policy: BfcPolicy,
    pub(crate) regions: Regions,
    pub(crate) chunks: Slab,
    pub(crate) bins: I,
    pub(crate) stamps: Stamps,
    /// Records of returned blocks, reused for new blocks.
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    pub(super) unused: Vec<Box<Record>>,
    /// Records that the heap has created: those of blocks and the unused ones.
    pub(crate) records: usize,
    pub(super) device: Device,
    pub(super) access: Access,
    pub(crate) live: usize,
    pub(crate) reserved: usize,
    pub(crate) peak_reserved: usize,
    pub(crate) watched: WatchedRegions,
    /// The minimum of free bytes since the last call of [`Heap::unneeded`].
    pub(super) min_free: usize,
}

impl<I: FreeIndex> Heap<I> {
    pub(crate) fn new(policy: BfcPolicy, device: Device, access: Access) -> Self {
        let bins = I::new(policy.granule);
        Self {
            policy,
            bins,
            regions: Regions::default(),
            chunks: Slab::default(),
            stamps: Stamps::default(),
            unused: Vec::new(),
            records: 0,
            device,
            access,
            live: 0,
            reserved: 0,
            peak_reserved: 0,
            watched: WatchedRegions::new(device),
            min_free: 0,
        }
    }

    /// Checks that a returned block is from this heap and in use. Returns its chunk.
    #[inline]
    pub(crate) fn check(&self, block: &RawBlock) -> Result<Index> {
        let index = block.token;
        match self.chunks.get(index) {
            Some(chunk) if chunk.record == Some(block.record()) => {
                // The slab never holds more chunks than an `Index` can number.
                Ok(Index::try_from(index).unwrap_or(NONE))
            }
            _ => Err(self.misuse(block.address())),
        }
    }

    /// Returns the error for `address`, which is not the address of a live block.
    #[cold]
    fn misuse(&self, address: usize) -> Error {
        match self.regions.containing(address) {
            Some(map) if map.clean_from > address => Error::DoubleFree { address },
            _ => Error::ForeignPointer { address },
        }
    }

    /// Returns the chunk that starts at `address`.
    pub(super) fn chunk_at(&self, address: usize) -> Option<Index> {
        self.regions.containing(address)?.chunk_at(address, &self.chunks)
    }

    /// Returns the chunk in use that starts at `address`.
    pub(crate) fn find(&self, address: usize) -> Result<(Index, LookupResult)> {
        match self.chunk_at(address).map(|index| (index, &self.chunks[index])) {
            Some((index, chunk)) if chunk.in_use() => Ok((
                index,
                LookupResult {
                    requested: chunk.requested,
                    granted: chunk.size,
                    id: chunk.id,
                    kind: chunk.kind,
                },
            )),
            _ => Err(self.misuse(address)),
        }
    }

    /// Returns the block of a chunk in use, for a free by address.
    ///
    /// # Safety
    ///
    /// The user gave the block up.
    pub(crate) unsafe fn block_of(&self, index: Index) -> Option<RawBlock> {
        // SAFETY: the block was given up (guaranteed by the caller) and not returned: the chunk is in use.
        self.chunks[index].record.map(|record| unsafe { RawBlock::from_record(record) })
    }

    /// Returns `true` if the chunk that the record names is in use by this record.
    pub(crate) fn holds(&self, record: &Record) -> bool {
        let chunk = self.chunks.get(chunk_index(record));
        chunk.is_some_and(|chunk| chunk.record.is_some_and(|known| std::ptr::eq(known.as_ptr(), record)))
    }

    /// Returns the bytes that were free the whole time since the last call.
    pub(crate) fn unneeded(&mut self) -> usize {
        std::mem::replace(&mut self.min_free, self.reserved - self.live)
    }

    /// Releases the memory of unused records, and of unused places in the slab and in the index.
    pub(crate) fn release_records(&mut self) {
        self.records -= self.unused.len();
        self.unused = Vec::new();
        self.chunks.shrink();
        self.bins.shrink(self.chunks.places());
    }

    /// Iterates over the chunks of a region in order of address.
    pub(crate) fn walk<'a>(&'a self, map: &RegionMap) -> impl Iterator<Item = (Index, &'a Chunk)> + 'a {
        self.chunks.walk(map)
    }

    /// Iterates over all chunks.
    pub(crate) fn walk_all(&self) -> impl Iterator<Item = &Chunk> + '_ {
        self.regions.iter().flat_map(|(_, map)| self.walk(map)).map(|(_, chunk)| chunk)
    }
}

/// Returns the index of the chunk that a record names: the lower half of its token. Engines keep other data
/// in the upper half.
#[inline]
pub(super) fn chunk_index(record: &Record) -> usize {
    record.token & Index::MAX as usize
}

// SAFETY: the heap owns its unused records; the records of live blocks it only compares by address.
unsafe impl<I: Send> Send for Heap<I> {}
