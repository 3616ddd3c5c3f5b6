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

use super::bins::{Bins, Free, FreeIndex};
use super::chunks::{Chunk, Index, NONE, RegionMap, Regions, Slab};
use super::policy::BfcPolicy;
use super::regions::GrowthOutcome;
use super::stamps::Stamps;
use super::watch::WatchedRegions;
use crate::{Access, Error, LookupResult, RawBlock, Record, Request, Result};
use orlop_core::{Alignment, Device};
use orlop_sync::CentralHeap;
use std::ptr::NonNull;

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

/// An aligned search tries this many chunks that may fit before it looks for one that is large enough at any
/// address.
const ALIGNED_TRIES: usize = 16;

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
    min_free: usize,
}

impl<I: FreeIndex> CentralHeap for Heap<I> {
    type Request<'a> = HeapRequest<'a>;
    type Chunk = HeapBlock;
    type Region = GrowthOutcome;

    #[inline]
    fn take(&mut self, wanted: &HeapRequest<'_>) -> Option<HeapBlock> {
        if self.stamps.is_due() {
            // Merge the chunks whose stamps have become safe before the search.
            self.merge_stamped(0);
        }
        if wanted.request.freed_before == 0 && wanted.request.align <= self.policy.granule {
            // Every chunk starts at a multiple of the granule: the best fit is the first chunk that is large
            // enough.
            let free = self.bins.take(wanted.rounded)?;
            self.chunks[free.chunk].binned = false;
            return self.cut(free.chunk, wanted);
        }
        let (free, start) = self.search(wanted)?;
        self.unbin(free.chunk);
        let mut index = free.chunk;
        if start > free.address {
            // The aligned block starts inside the chunk: the part before it stays free.
            self.recommit(index);
            let rest = self.split(index, start - free.address);
            self.bin(index);
            self.queue_stamp(index);
            index = rest?;
        }
        self.cut(index, wanted)
    }

    fn add(&mut self, outcome: GrowthOutcome) {
        match outcome {
            GrowthOutcome::Retry => {}
            GrowthOutcome::NewRegion(map) => self.add_region(map),
            GrowthOutcome::Extended { region, bytes } => self.lengthen(region, bytes),
        }
    }
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
            watched: WatchedRegions::default(),
            min_free: 0,
        }
    }

    /// Finds the best fitting free chunk for a request with a stamp or with an alignment above the granule.
    /// Returns it with the address at which the block starts.
    fn search(&self, wanted: &HeapRequest<'_>) -> Option<(Free, usize)> {
        let usable = |free: &Free| {
            wanted.request.freed_before == 0
                || self.chunks[free.chunk].freed_at <= wanted.request.freed_before
        };
        if wanted.request.align <= self.policy.granule {
            return self.bins.at_least(wanted.rounded).find(usable).map(|free| (free, free.address));
        }
        let fits = |free: Free| {
            let start = wanted.request.align.round_up(free.address).ok()?;
            let end = start.checked_add(wanted.rounded)?;
            (end <= free.address + free.size && usable(&free)).then_some((free, start))
        };
        let slack = wanted.request.align.bytes() - self.policy.granule.bytes();
        let surely = || self.bins.at_least(wanted.rounded.checked_add(slack)?).find_map(fits);
        // Growth costs more than a search over every chunk. A region that was reserved for this very request
        // can be smaller than `rounded + slack` and still fit, so the last search covers all chunks.
        let last = || self.bins.at_least(wanted.rounded).skip(ALIGNED_TRIES).find_map(fits);
        self.bins.at_least(wanted.rounded).take(ALIGNED_TRIES).find_map(fits).or_else(surely).or_else(last)
    }

    /// Splits a free chunk that is not in the index to the requested size, and makes a block of it.
    #[inline]
    pub(super) fn cut(&mut self, index: Index, wanted: &HeapRequest<'_>) -> Option<HeapBlock> {
        self.recommit(index);
        if self.policy.splits(self.chunks[index].size, wanted.rounded)
            && let Some(rest) = self.split(index, wanted.rounded)
        {
            self.bin(rest);
            self.queue_stamp(rest);
        }
        let Chunk { address, size, region, .. } = self.chunks[index];
        self.live += size;
        self.min_free = self.min_free.min(self.reserved - self.live);
        let (ptr, dirty) = self.hand_out(region, address, size);
        let mut record = self.unused.pop().unwrap_or_else(|| {
            self.records += 1;
            Box::new(Record::new(ptr, size, self.device, self.access))
        });
        (record.ptr, record.granted, record.token) = (ptr, size, index as usize);
        record.assign(wanted.request);
        let chunk = &mut self.chunks[index];
        (chunk.requested, chunk.id, chunk.tag, chunk.kind) =
            (record.requested, record.id, record.tag, record.kind);
        let block = RawBlock::new(record);
        chunk.record = Some(block.record());
        Some(HeapBlock { block, dirty })
    }

    /// Extends a chunk in use into the free chunk behind it, so that it has at least `rounded` bytes. Returns
    /// its new size.
    pub(crate) fn extend(&mut self, index: Index, rounded: usize, requested: usize) -> Option<usize> {
        let Chunk { size, next, .. } = self.chunks[index];
        if size < rounded {
            let behind = self.chunks.get(next as usize).filter(|_| next != NONE)?;
            if behind.in_use() || behind.freed_at > 0 || size.checked_add(behind.size)? < rounded {
                return None;
            }
            self.unbin(next);
            self.recommit(next);
            // The stamp is that of the chunk's last free before it was handed out. It says nothing about the
            // bytes behind it.
            self.chunks[index].freed_at = 0;
            self.merge(index, next);
            if self.chunks[index].size > rounded
                && let Some(rest) = self.split(index, rounded)
            {
                self.bin(rest);
            }
        }
        let chunk = &mut self.chunks[index];
        chunk.requested = requested;
        let Chunk { address, size: now, region, .. } = *chunk;
        self.live += now - size;
        self.min_free = self.min_free.min(self.reserved - self.live);
        self.hand_out(region, address + size, now - size);
        Some(now)
    }

    /// Marks a range as handed out. Returns its pointer, and how many of its bytes were handed out before.
    #[inline]
    fn hand_out(&mut self, region: Index, address: usize, size: usize) -> (NonNull<u8>, usize) {
        let Some(map) = self.regions.get_mut(region) else {
            // Chunks are removed with their region (`remove_region`), so the region of this chunk exists.
            unreachable!("chunk without a region")
        };
        let dirty = if map.region.zeroed { map.clean_from.saturating_sub(address).min(size) } else { size };
        map.clean_from = map.clean_from.max(address + size);
        (map.pointer_to(address), dirty)
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

    /// Frees the chunk of a record that only the caller can reach, and merges it with its free neighbours.
    #[inline]
    pub(crate) fn put_record(&mut self, record: Box<Record>) {
        // The slab never holds more chunks than an `Index` can number.
        let index = Index::try_from(chunk_index(&record)).unwrap_or(NONE);
        debug_assert!(self.holds(&record));
        self.put(index, record, 0);
    }

    /// Returns `true` if the chunk that the record names is in use by this record.
    pub(crate) fn holds(&self, record: &Record) -> bool {
        let chunk = self.chunks.get(chunk_index(record));
        chunk.is_some_and(|chunk| chunk.record.is_some_and(|known| std::ptr::eq(known.as_ptr(), record)))
    }

    /// Frees a chunk in use. Without a stamp it is merged with its free neighbours; with one it stays
    /// separate until the stamp is safe.
    #[inline]
    pub(crate) fn put(&mut self, index: Index, record: Box<Record>, freed_at: u64) {
        self.unused.push(record);
        let chunk = &mut self.chunks[index];
        chunk.record = None;
        chunk.freed_at = freed_at;
        self.live -= chunk.size;
        if freed_at > 0 {
            self.bin(index);
            self.queue_stamp(index);
        } else {
            let merged = self.coalesce(index, false);
            self.bin(merged);
        }
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
        let mut next = map.first().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let chunk = self.chunks.get(next as usize).filter(|_| next != NONE)?;
            let index = std::mem::replace(&mut next, chunk.next);
            Some((index, chunk))
        })
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
