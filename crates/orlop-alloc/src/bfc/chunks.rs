//! Chunks in a slab, and the map from addresses to chunks.

use crate::backing::{Region, Reservation};
use crate::{AllocationId, Record, Tag};
use orlop_core::MemoryKind;
use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// An index of the slab or of the regions; `NONE` ends lists.
pub(crate) type Index = u32;
pub(crate) const NONE: Index = u32::MAX;

/// The slab has fewer chunks than this: engines use the highest bit of an index for their own purposes.
pub(crate) const LIMIT: Index = 1 << 31;

/// A piece of a region, free or in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// The record of the block while the chunk is in use. It is only compared: the record belongs to the
    /// holder of the block, so the heap keeps copies of the values it needs.
    pub(crate) record: Option<NonNull<Record>>,
    pub(crate) requested: usize,
    pub(crate) id: AllocationId,
    /// The stamp of its free, until the safe frontier passes it; else zero.
    pub(crate) freed_at: u64,
    /// Of a free chunk: bytes whose pages were discarded. They do not count as reserved.
    pub(crate) discarded: usize,
    /// The previous chunk in the region.
    pub(crate) previous: Index,
    pub(crate) next: Index,
    pub(crate) region: Index,
    pub(crate) tag: Tag,
    pub(crate) kind: MemoryKind,
    /// Whether it is in the index of free chunks.
    pub(crate) binned: bool,
    /// Whether its slab index is in the queue of stamped chunks. The flag stays with the index when that is
    /// reused.
    pub(crate) queued: bool,
}

impl Chunk {
    pub(crate) fn in_use(&self) -> bool {
        self.record.is_some()
    }

    pub(crate) fn end(&self) -> usize {
        self.address + self.size
    }

    /// Creates a free chunk of `size` bytes at `address`.
    pub(crate) fn free(address: usize, size: usize, region: Index) -> Self {
        Self {
            address,
            size,
            record: None,
            requested: 0,
            id: AllocationId::NONE,
            freed_at: 0,
            discarded: 0,
            previous: NONE,
            next: NONE,
            region,
            tag: Tag::NONE,
            kind: MemoryKind::Default,
            binned: false,
            queued: false,
        }
    }
}

/// Chunks by index. Unused indices are reused, the latest first, so that the slab stays as small as the
/// maximum number of chunks.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Chunk>,
    unused: Vec<Index>,
}

impl Slab {
    /// Puts a chunk into the slab. Returns `None` when the slab has `LIMIT` chunks.
    #[inline]
    pub(crate) fn insert(&mut self, chunk: Chunk) -> Option<Index> {
        if let Some(index) = self.unused.pop() {
            let queued = self[index].queued;
            self[index] = Chunk { queued, ..chunk };
            return Some(index);
        }
        let index = Index::try_from(self.chunks.len()).ok().filter(|&index| index < LIMIT)?;
        self.chunks.push(chunk);
        Some(index)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: Index) {
        let chunk = &mut self[index];
        chunk.record = None;
        chunk.size = 0;
        chunk.binned = false;
        self.unused.push(index);
    }

    /// Returns the length of the slab, unused places included.
    pub(crate) fn places(&self) -> usize {
        self.chunks.len()
    }

    /// Releases the unused places at the end.
    pub(crate) fn shrink(&mut self) {
        let mut unused: Vec<bool> = vec![false; self.chunks.len()];
        for &index in &self.unused {
            unused[index as usize] = true;
        }
        let needed = |(unused, chunk): (&bool, &Chunk)| !unused || chunk.queued;
        let used = unused.iter().zip(&self.chunks).rposition(needed).map_or(0, |last| last + 1);
        self.chunks.truncate(used);
        self.chunks.shrink_to_fit();
        self.unused.retain(|&index| (index as usize) < used);
        self.unused.shrink_to_fit();
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Chunk> {
        self.chunks.get(index)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.unused.capacity() * size_of::<Index>()
    }

    /// Iterates over the chunks of a region in order of address.
    pub(crate) fn walk<'a>(&'a self, map: &RegionMap) -> impl Iterator<Item = (Index, &'a Chunk)> + 'a {
        let mut next = map.first().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let chunk = self.get(next as usize).filter(|_| next != NONE)?;
            let index = std::mem::replace(&mut next, chunk.next);
            Some((index, chunk))
        })
    }
}

impl std::ops::Index<Index> for Slab {
    type Output = Chunk;

    #[inline]
    fn index(&self, index: Index) -> &Chunk {
        &self.chunks[index as usize]
    }
}

impl std::ops::IndexMut<Index> for Slab {
    #[inline]
    fn index_mut(&mut self, index: Index) -> &mut Chunk {
        &mut self.chunks[index as usize]
    }
}

/// Addresses are looked up by pages of this size.
const PAGE_LOG2: u32 = 12;

/// A region, with the first chunk that starts in each of its pages.
#[derive(Debug)]
pub(crate) struct RegionMap {
    /// The committed part.
    pub(crate) region: Region,
    /// The addresses set aside for it, if the region grows in place.
    pub(crate) reservation: Option<Reservation>,
    /// From this address on, no byte was handed out: in a zeroed region these are still zero.
    pub(crate) clean_from: usize,
    /// The last chunk.
    pub(crate) last: Index,
    /// By page: the index plus one of the first chunk that starts in it, zero if none does. The system
    /// commits the pages of this array when they are first written.
    firsts: Vec<u32>,
}

impl RegionMap {
    /// Creates the map of a region. Returns `None` if there is no memory for it: address space can be larger
    /// than memory.
    pub(crate) fn new(region: Region, reservation: Option<Reservation>) -> Option<Self> {
        let firsts = zeros(pages(region.bytes))?;
        Some(Self { clean_from: region.address(), last: NONE, firsts, region, reservation })
    }

    pub(crate) fn start(&self) -> usize {
        self.region.address()
    }

    pub(crate) fn end(&self) -> usize {
        self.start() + self.region.bytes
    }

    /// Returns the pointer to an address in the region.
    #[inline]
    pub(crate) fn pointer_to(&self, address: usize) -> NonNull<u8> {
        // Wrapping, because bare address space is not an object that the pointer must stay inside of. The
        // pointer keeps its provenance.
        let ptr = self.region.ptr.as_ptr().wrapping_add(address - self.start());
        // SAFETY: the address lies in the region, which does not wrap around: not null.
        unsafe { NonNull::new_unchecked(ptr) }
    }

    #[inline]
    fn page(&self, address: usize) -> usize {
        (address - self.start()) >> PAGE_LOG2
    }

    /// Changes the length. Returns `false` if there is no memory for the map.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let pages = pages(bytes);
        if pages > self.firsts.len() && self.firsts.try_reserve(pages - self.firsts.len()).is_err() {
            return false;
        }
        self.firsts.resize(pages, 0);
        self.region.bytes = bytes;
        true
    }

    /// Records that a chunk starts at `address`, and the one before it at `previous`.
    #[inline]
    pub(crate) fn add_start(&mut self, address: usize, chunk: Index, previous: Option<usize>) {
        let page = self.page(address);
        // The new chunk is the first in its page unless the one before it starts in the same page.
        if previous.is_none_or(|previous| self.page(previous) != page) {
            self.firsts[page] = chunk + 1;
        }
    }

    /// Records that no chunk starts at `address` any more. `next` is the chunk behind it.
    #[inline]
    pub(crate) fn remove_start(&mut self, address: usize, chunk: Index, next: Option<(usize, Index)>) {
        let page = self.page(address);
        if self.firsts[page] == chunk + 1 {
            let next = next.filter(|&(next, _)| self.page(next) == page);
            self.firsts[page] = next.map_or(0, |(_, chunk)| chunk + 1);
        }
    }

    /// Returns the first chunk.
    #[inline]
    pub(crate) fn first(&self) -> Option<Index> {
        self.firsts.first()?.checked_sub(1)
    }

    /// Returns the chunk that starts at `address`, which lies in the region.
    pub(crate) fn chunk_at(&self, address: usize, chunks: &Slab) -> Option<Index> {
        let mut index = self.firsts.get(self.page(address))?.checked_sub(1)?;
        while index != NONE && chunks[index].address < address {
            index = chunks[index].next;
        }
        (index != NONE && chunks[index].address == address).then_some(index)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<u32>()
    }
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(1 << PAGE_LOG2)
}

/// Returns `count` zeros in pages that the system commits when they are first written; `None` if it refuses.
/// (`vec![0; n]` would abort then, and `try_reserve` with `resize` would write every page.)
fn zeros(count: usize) -> Option<Vec<u32>> {
    let layout = Layout::array::<u32>(count).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the size is not zero.
    let words = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
    // SAFETY: just allocated by the global allocator with the layout of `count` words, all of them zero.
    Some(unsafe { Vec::from_raw_parts(words.as_ptr().cast(), count, count) })
}

/// Regions by index and by address.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    slots: Vec<Option<RegionMap>>,
    by_address: Vec<(usize, Index)>,
}

impl Regions {
    pub(crate) fn insert(&mut self, map: RegionMap) -> Option<Index> {
        let index = match self.slots.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        let start = map.start();
        let place = self.by_address.partition_point(|&(address, _)| address < start);
        let index = Index::try_from(index).ok()?;
        self.by_address.insert(place, (start, index));
        self.slots[index as usize] = Some(map);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<RegionMap> {
        self.by_address.retain(|&(_, i)| i != index);
        self.slots.get_mut(index as usize)?.take()
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> Option<&RegionMap> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut RegionMap> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// Returns the region that contains `address`.
    pub(crate) fn containing(&self, address: usize) -> Option<&RegionMap> {
        let after = self.by_address.partition_point(|&(start, _)| start <= address);
        let &(_, index) = self.by_address.get(after.checked_sub(1)?)?;
        self.get(index).filter(|map| address < map.end())
    }

    /// Iterates over the regions in order of address.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Index, &RegionMap)> + '_ {
        self.by_address.iter().filter_map(|&(_, index)| self.get(index).map(|map| (index, map)))
    }

    pub(crate) fn count(&self) -> usize {
        self.by_address.len()
    }
}
