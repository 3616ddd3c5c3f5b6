//! Blocks of the heap: the search for a free chunk, its cut to the requested size, growth in place, and the
//! free.

use super::bins::{Free, FreeIndex};
use super::chunks::{Chunk, Index, NONE};
use super::heap::{GrowthOutcome, Heap, HeapBlock, HeapRequest, chunk_index};
use crate::{RawBlock, Record};
use orlop_sync::CentralHeap;
use std::ptr::NonNull;

/// An aligned search tries this many chunks that may fit before it looks for one that is large enough at any
/// address.
const ALIGNED_TRIES: usize = 16;

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

    /// Frees the chunk of a record that only the caller can reach, and merges it with its free neighbours.
    #[inline]
    pub(crate) fn put_record(&mut self, record: Box<Record>) {
        // The slab never holds more chunks than an `Index` can number.
        let index = Index::try_from(chunk_index(&record)).unwrap_or(NONE);
        debug_assert!(self.holds(&record));
        self.put(index, record, 0);
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
}
