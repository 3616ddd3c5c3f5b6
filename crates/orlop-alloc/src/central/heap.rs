//! The central structure: regions cut into chunks, free chunks in bins. Single-threaded and without a
//! backing: it decides, the engine around it locks and gets memory.
//!
//! # Invariants
//!
//! 1. The chunks of a region, linked by `previous` and `next`, cover it without gap or overlap, in order of
//!    address; the region's map names each by its start.
//! 2. Every free chunk is in the index exactly once; no chunk in use is.
//! 3. No two neighbours are both free, unless one waits for its stamp to become safe.
//! 4. `live` is the sum of the sizes in use, `reserved` the sum of the regions.
//!
//! [`Heap::verify`] proves them by walking everything.

use super::bins::{Bins, Free};
use super::chunks::{Chunk, Index, Mapped, NONE, Regions, Slab};
use super::policy::Policy;
use super::stamps::Stamps;
use crate::backing::Region;
use crate::protocol::Centre;
use crate::{Access, Error, Found, RawBlock, Record, Request, Result};
use orlop_core::{Alignment, Device};
use std::ptr::NonNull;

/// A request as the heap sees it.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) request: &'a Request,
    /// The bytes to find, a multiple of the granule.
    pub(super) rounded: usize,
}

impl<'a> Ask<'a> {
    /// Rounds the request up to the policy's granule.
    #[inline]
    pub(super) fn new(request: &'a Request, granule: Alignment) -> Result<Self> {
        Ok(Self { rounded: granule.round_up(request.bytes.max(1))?, request })
    }
}

/// A chunk that was handed out.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) block: RawBlock,
    /// The first so many bytes may be other than zero.
    pub(super) dirty: usize,
}

/// Aligned searches look at so many chunks that might fit before they take one that surely does.
const ALIGNED_TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Heap {
    pub(super) policy: Policy,
    pub(super) regions: Regions,
    pub(super) chunks: Slab,
    pub(super) bins: Bins,
    pub(super) stamps: Stamps,
    /// Records of no block, for the next ones.
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    unused: Vec<Box<Record>>,
    device: Device,
    access: Access,
    pub(super) live: usize,
    pub(super) reserved: usize,
    pub(super) peak_reserved: usize,
}

impl Centre for Heap {
    type Ask<'a> = Ask<'a>;
    type Got = Taken;
    type Gain = Option<Mapped>;

    #[inline]
    fn take(&mut self, ask: &Ask<'_>) -> Option<Taken> {
        if self.stamps.is_due() {
            // Chunks whose stamps have become safe are merged before anybody looks.
            self.merge_stamped(0);
        }
        if ask.request.freed_before == 0 && ask.request.align <= self.policy.granule {
            // Every chunk begins at a multiple of the granule: the best fit is the first that is large enough.
            let free = self.bins.take_best(ask.rounded)?;
            self.chunks[free.chunk].binned = false;
            return self.cut(free.chunk, ask);
        }
        let (free, start) = self.search(ask)?;
        self.unbin(free.chunk);
        let mut index = free.chunk;
        if start > free.address {
            // An aligned block in the middle: what is before it stays free.
            let rest = self.split(index, start - free.address);
            self.bin(index);
            self.queue_stamp(index);
            index = rest?;
        }
        self.cut(index, ask)
    }

    fn add(&mut self, gain: Option<Mapped>) {
        if let Some(mapped) = gain {
            self.add_region(mapped);
        }
    }
}

impl Heap {
    pub(super) fn new(policy: Policy, device: Device, access: Access) -> Self {
        let bins = Bins::new(policy.granule.log2());
        Self {
            policy,
            bins,
            regions: Regions::default(),
            chunks: Slab::default(),
            stamps: Stamps::default(),
            unused: Vec::new(),
            device,
            access,
            live: 0,
            reserved: 0,
            peak_reserved: 0,
        }
    }

    /// The best fitting free chunk for a request with a stamp or an alignment beyond the granule, and where in
    /// it the block would begin.
    fn search(&self, ask: &Ask<'_>) -> Option<(Free, usize)> {
        let usable = |free: &Free| {
            ask.request.freed_before == 0 || self.chunks[free.chunk].freed_at <= ask.request.freed_before
        };
        if ask.request.align <= self.policy.granule {
            return self.bins.at_least(ask.rounded).find(usable).map(|free| (free, free.address));
        }
        let fits = |free: Free| {
            let start = ask.request.align.round_up(free.address).ok()?;
            let end = start.checked_add(ask.rounded)?;
            (end <= free.address + free.size && usable(&free)).then_some((free, start))
        };
        let slack = ask.request.align.bytes() - self.policy.granule.bytes();
        let surely = || self.bins.at_least(ask.rounded.checked_add(slack)?).find_map(fits);
        // Growing costs more than looking at every chunk, and a region that was gained for this very request
        // may be none that surely fits.
        let last = || self.bins.at_least(ask.rounded).skip(ALIGNED_TRIES).find_map(fits);
        self.bins.at_least(ask.rounded).take(ALIGNED_TRIES).find_map(fits).or_else(surely).or_else(last)
    }

    /// Cuts a free chunk that is not in the index to size, and makes it a block.
    #[inline]
    fn cut(&mut self, index: Index, ask: &Ask<'_>) -> Option<Taken> {
        if self.policy.splits(self.chunks[index].size, ask.rounded)
            && let Some(rest) = self.split(index, ask.rounded)
        {
            self.bin(rest);
            self.queue_stamp(rest);
        }
        let Chunk { address, size, region, .. } = self.chunks[index];
        self.live += size;
        let (ptr, dirty) = self.hand_out(region, address, size);
        let mut record =
            self.unused.pop().unwrap_or_else(|| Box::new(Record::new(ptr, size, self.device, self.access)));
        (record.ptr, record.granted, record.token) = (ptr, size, index as usize);
        record.assign(ask.request);
        let chunk = &mut self.chunks[index];
        (chunk.requested, chunk.id, chunk.tag, chunk.kind) =
            (record.requested, record.id, record.tag, record.kind);
        let block = RawBlock::new(record);
        chunk.record = Some(block.record());
        Some(Taken { block, dirty })
    }

    /// The pointer to `address`, and how many of the bytes from there on were handed out before.
    #[inline]
    fn hand_out(&mut self, region: Index, address: usize, size: usize) -> (NonNull<u8>, usize) {
        let Some(mapped) = self.regions.get_mut(region) else {
            // Chunks go with their region (`remove_region`), so this chunk's region is there.
            unreachable!("chunk without a region")
        };
        let dirty =
            if mapped.region.zeroed { mapped.clean_from.saturating_sub(address).min(size) } else { size };
        mapped.clean_from = mapped.clean_from.max(address + size);
        // Wrapping, because address space that nobody can touch is no object to stay inside of; the pointer
        // keeps its provenance, where it has one.
        let ptr = mapped.region.ptr.as_ptr().wrapping_add(address - mapped.start());
        // SAFETY: the chunk lies in the region (invariant 1), which does not wrap around: not null.
        let ptr = unsafe { NonNull::new_unchecked(ptr) };
        (ptr, dirty)
    }

    /// Checks that a returned block is one of ours and in use.
    #[inline]
    pub(super) fn check(&self, block: &RawBlock) -> Result<Index> {
        let index = block.token;
        match self.chunks.get(index) {
            Some(chunk) if chunk.record == Some(block.record()) => {
                // The slab never holds more places than an `Index` can name.
                Ok(Index::try_from(index).unwrap_or(NONE))
            }
            _ => Err(self.misuse(block.address())),
        }
    }

    /// What is wrong with `address`, which is not a live block's.
    #[cold]
    fn misuse(&self, address: usize) -> Error {
        match self.regions.containing(address) {
            Some(mapped) if mapped.clean_from > address => Error::DoubleFree { address },
            _ => Error::ForeignPointer { address },
        }
    }

    /// The live chunk that begins at `address`.
    pub(super) fn find(&self, address: usize) -> Result<(Index, Found)> {
        let index = self.regions.containing(address).and_then(|mapped| mapped.chunk_at(address));
        match index.map(|index| (index, &self.chunks[index])) {
            Some((index, chunk)) if chunk.in_use() => Ok((
                index,
                Found { requested: chunk.requested, granted: chunk.size, id: chunk.id, kind: chunk.kind },
            )),
            _ => Err(self.misuse(address)),
        }
    }

    /// The block of a chunk in use, for returning it by address.
    ///
    /// # Safety
    ///
    /// Nobody holds the block any more.
    pub(super) unsafe fn block_of(&self, index: Index) -> Option<RawBlock> {
        // SAFETY: it was given up (the caller's promise) and not returned: the chunk is in use.
        self.chunks[index].record.map(|record| unsafe { RawBlock::found(record) })
    }

    /// Puts a chunk in use back, merged with its free neighbours; with a stamp it waits instead.
    #[inline]
    pub(super) fn put(&mut self, index: Index, record: Box<Record>, freed_at: u64) {
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

    /// Adds a region as one free chunk.
    fn add_region(&mut self, mapped: Mapped) {
        let size = self.policy.granule.round_down(mapped.region.bytes);
        let start = mapped.start();
        self.reserved += mapped.region.bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        let Some(index) = self.regions.insert(mapped) else { return };
        // A slab full of chunks leaves the region held and unused; it is given back with the heap.
        if let Some(chunk) = self.chunks.insert(Chunk::free(start, size, index)) {
            self.map(index, start, chunk);
            self.bin(chunk);
        }
    }

    /// Takes a wholly free region out, with its chunks.
    pub(super) fn remove_region(&mut self, index: Index) -> Option<Region> {
        let mapped = self.regions.get(index)?;
        let mut next = mapped.chunk_at(mapped.start());
        while let Some(chunk) = next.filter(|&chunk| chunk != NONE) {
            if self.chunks[chunk].binned {
                self.unbin(chunk);
            }
            next = Some(self.chunks[chunk].next);
            self.chunks.remove(chunk);
        }
        let region = self.regions.remove(index)?.region;
        self.reserved -= region.bytes;
        Some(region)
    }

    /// Regions that nobody uses, highest address first.
    pub(super) fn free_regions(&self) -> Vec<(Index, usize)> {
        // A chunk with a stamp that is not safe may still be used by a device: its region cannot go either.
        let free =
            |chunk: &Chunk| !chunk.in_use() && (chunk.freed_at == 0 || self.stamps.is_safe(chunk.freed_at));
        let all_free = |mapped: &Mapped| self.walk(mapped).all(|(_, chunk)| free(chunk));
        self.regions.iter().rev().filter(|(_, m)| all_free(m)).map(|(i, m)| (i, m.region.bytes)).collect()
    }

    /// The chunks of a region in order of address.
    pub(super) fn walk<'a>(&'a self, mapped: &Mapped) -> impl Iterator<Item = (Index, &'a Chunk)> + 'a {
        let mut next = mapped.chunk_at(mapped.start()).unwrap_or(NONE);
        std::iter::from_fn(move || {
            let chunk = self.chunks.get(next as usize).filter(|_| next != NONE)?;
            let index = std::mem::replace(&mut next, chunk.next);
            Some((index, chunk))
        })
    }

    /// All chunks.
    pub(super) fn walk_all(&self) -> impl Iterator<Item = &Chunk> + '_ {
        self.regions.iter().flat_map(|(_, mapped)| self.walk(mapped)).map(|(_, chunk)| chunk)
    }

    #[inline]
    fn map(&mut self, region: Index, address: usize, chunk: Index) {
        if let Some(mapped) = self.regions.get_mut(region) {
            mapped.set(address, chunk);
        }
    }

    /// Cuts a chunk that is not in the index after `size` bytes; the new chunk behind it has its stamp.
    /// `None`, and nothing is cut, when the slab is full.
    #[inline]
    fn split(&mut self, index: Index, size: usize) -> Option<Index> {
        let Chunk { address, size: whole, next, freed_at, region, .. } = self.chunks[index];
        let start = address + size;
        let rest = Chunk { previous: index, next, freed_at, ..Chunk::free(start, whole - size, region) };
        let new = self.chunks.insert(rest)?;
        self.map(region, start, new);
        if next != NONE {
            self.chunks[next].previous = new;
        }
        let chunk = &mut self.chunks[index];
        chunk.size = size;
        chunk.next = new;
        Some(new)
    }

    /// Merges a free chunk that is not in the index with its free neighbours. Stamped chunks stay apart
    /// unless `ignore_stamps`.
    pub(super) fn coalesce(&mut self, index: Index, ignore_stamps: bool) -> Index {
        let chunk = &self.chunks[index];
        if chunk.freed_at > 0 && !ignore_stamps {
            return index;
        }
        let (previous, next) = (chunk.previous, chunk.next);
        let mergeable = |heap: &Self, neighbour: Index| {
            neighbour != NONE && {
                let neighbour = &heap.chunks[neighbour];
                !neighbour.in_use() && (neighbour.freed_at == 0 || ignore_stamps)
            }
        };
        if mergeable(self, next) {
            self.unbin(next);
            self.merge(index, next);
        }
        if mergeable(self, previous) {
            self.unbin(previous);
            self.merge(previous, index);
            return previous;
        }
        index
    }

    /// Makes two neighbours one, with the later stamp.
    fn merge(&mut self, first: Index, second: Index) {
        let Chunk { address, size, next, freed_at, region, .. } = self.chunks[second];
        let kept = &mut self.chunks[first];
        kept.size += size;
        kept.next = next;
        kept.freed_at = kept.freed_at.max(freed_at);
        if next != NONE {
            self.chunks[next].previous = first;
        }
        if let Some(mapped) = self.regions.get_mut(region) {
            mapped.clear(address);
        }
        self.chunks.remove(second);
    }

    #[inline]
    pub(super) fn bin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        debug_assert!(!chunk.binned && !chunk.in_use());
        chunk.binned = true;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        self.bins.insert(free);
    }

    #[inline]
    pub(super) fn unbin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        chunk.binned = false;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        let removed = self.bins.remove(free);
        debug_assert!(removed);
    }
}

// SAFETY: the heap owns its unused records; the addresses of those of live blocks it only compares.
unsafe impl Send for Heap {}
