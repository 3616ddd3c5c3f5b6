//! Chunks in a slab, and the map from address to chunk.

use crate::backing::{Region, Reservation};
use crate::{AllocationId, Record, Tag};
use orlop_core::MemoryKind;
use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// A place in the slab; `NONE` ends lists.
pub(crate) type Index = u32;
pub(crate) const NONE: Index = u32::MAX;

/// The slab has no more places than this: engines use the highest bit of a place for their own ends.
pub(crate) const LIMIT: Index = 1 << 31;

/// A piece of a region, free or in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// Where the record of the block is, while in use. Only compared: the record belongs to whoever holds
    /// the block, so what the heap needs of it is repeated here.
    pub(crate) record: Option<NonNull<Record>>,
    pub(crate) requested: usize,
    pub(crate) id: AllocationId,
    /// When it was freed, if stamps are kept and the safe frontier has not passed it; else zero.
    pub(crate) freed_at: u64,
    /// Of a free chunk: so many bytes are with the system, and not counted as reserved.
    pub(crate) discarded: usize,
    /// The chunk before it in the region. In an unused slab place: the next unused place is in `next`.
    pub(crate) previous: Index,
    pub(crate) next: Index,
    pub(crate) region: Index,
    pub(crate) tag: Tag,
    pub(crate) kind: MemoryKind,
    /// Whether it is in the index of free chunks.
    pub(crate) binned: bool,
    /// Whether its place is in the queue of stamped chunks. Stays with the place when that is used again.
    pub(crate) queued: bool,
}

impl Chunk {
    pub(crate) fn in_use(&self) -> bool {
        self.record.is_some()
    }

    pub(crate) fn end(&self) -> usize {
        self.address + self.size
    }

    /// A free chunk over `size` bytes at `address`.
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

/// Chunks by index. Places are reused, latest first, so that the slab stays as small as the most chunks
/// there ever were.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Chunk>,
    unused: Vec<Index>,
}

impl Slab {
    /// Puts a chunk into the slab. `None` when there are two thousand million already.
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

    /// How many places there are.
    pub(crate) fn places(&self) -> usize {
        self.chunks.len()
    }

    /// Gives unused places at the end back.
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

/// A region with the first chunk that begins in each of its pages.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// What was gained so far.
    pub(crate) region: Region,
    /// If the region grows in place: in what.
    pub(crate) line: Option<Reservation>,
    /// From here on no byte was ever handed out: with a zeroed region they still are zero.
    pub(crate) clean_from: usize,
    /// The chunk at its end.
    pub(crate) last: Index,
    /// Chunk index plus one, zero if none begins in the page. Zeroed lazily by the system: only what is near
    /// chunks takes memory.
    firsts: Vec<u32>,
}

impl Mapped {
    /// `None` where there is no memory for the map: address space can be larger than any memory.
    pub(crate) fn new(region: Region, line: Option<Reservation>) -> Option<Self> {
        let firsts = zeros(pages(region.bytes))?;
        Some(Self { clean_from: region.address(), last: NONE, firsts, region, line })
    }

    pub(crate) fn start(&self) -> usize {
        self.region.address()
    }

    pub(crate) fn end(&self) -> usize {
        self.start() + self.region.bytes
    }

    /// The pointer to an address in the region.
    #[inline]
    pub(crate) fn pointer_to(&self, address: usize) -> NonNull<u8> {
        // Wrapping, because address space that nobody can touch is no object to stay inside of; the pointer keeps
        // its provenance, where it has one.
        let ptr = self.region.ptr.as_ptr().wrapping_add(address - self.start());
        // SAFETY: the address lies in the region, which does not wrap around: not null.
        unsafe { NonNull::new_unchecked(ptr) }
    }

    #[inline]
    fn page(&self, address: usize) -> usize {
        (address - self.start()) >> PAGE_LOG2
    }

    /// Changes the length: false if there is no memory for the map.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let pages = pages(bytes);
        if pages > self.firsts.len() && self.firsts.try_reserve(pages - self.firsts.len()).is_err() {
            return false;
        }
        self.firsts.resize(pages, 0);
        self.region.bytes = bytes;
        true
    }

    /// A chunk begins at `address`; the one before it begins at `previous`.
    #[inline]
    pub(crate) fn begins(&mut self, address: usize, chunk: Index, previous: Option<usize>) {
        let page = self.page(address);
        // A later chunk that was the first in the page is it no longer.
        if previous.is_none_or(|previous| self.page(previous) != page) {
            self.firsts[page] = chunk + 1;
        }
    }

    /// No chunk begins at `address` any more; the one after it is `next`.
    #[inline]
    pub(crate) fn ends(&mut self, address: usize, chunk: Index, next: Option<(usize, Index)>) {
        let page = self.page(address);
        if self.firsts[page] == chunk + 1 {
            let next = next.filter(|&(next, _)| self.page(next) == page);
            self.firsts[page] = next.map_or(0, |(_, chunk)| chunk + 1);
        }
    }

    /// The chunk at the start.
    #[inline]
    pub(crate) fn first(&self) -> Option<Index> {
        self.firsts.first()?.checked_sub(1)
    }

    /// The chunk that begins at `address`, which lies in the region.
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

/// So many zeros, in pages that the system provides when they are first written; `None` where it refuses.
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
    slots: Vec<Option<Mapped>>,
    by_address: Vec<(usize, Index)>,
}

impl Regions {
    pub(crate) fn insert(&mut self, mapped: Mapped) -> Option<Index> {
        let index = match self.slots.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        let start = mapped.start();
        let place = self.by_address.partition_point(|&(address, _)| address < start);
        let index = Index::try_from(index).ok()?;
        self.by_address.insert(place, (start, index));
        self.slots[index as usize] = Some(mapped);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<Mapped> {
        self.by_address.retain(|&(_, i)| i != index);
        self.slots.get_mut(index as usize)?.take()
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> Option<&Mapped> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut Mapped> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// The region that contains `address`.
    pub(crate) fn containing(&self, address: usize) -> Option<&Mapped> {
        let after = self.by_address.partition_point(|&(start, _)| start <= address);
        let &(_, index) = self.by_address.get(after.checked_sub(1)?)?;
        self.get(index).filter(|mapped| address < mapped.end())
    }

    /// Regions in order of address.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Index, &Mapped)> + '_ {
        self.by_address.iter().filter_map(|&(_, index)| self.get(index).map(|mapped| (index, mapped)))
    }

    pub(crate) fn count(&self) -> usize {
        self.by_address.len()
    }
}
