//! Chunks in a slab, and the map from address to chunk.

use crate::backing::Region;
use crate::{AllocationId, Record, Tag};
use orlop_core::MemoryKind;
use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// A place in the slab; `NONE` ends lists.
pub(super) type Index = u32;
pub(super) const NONE: Index = u32::MAX;

/// A piece of a region, free or in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) address: usize,
    pub(super) size: usize,
    /// Where the record of the block is, while in use. Only compared: the record belongs to whoever holds
    /// the block, so what the heap needs of it is repeated here.
    pub(super) record: Option<NonNull<Record>>,
    pub(super) requested: usize,
    pub(super) id: AllocationId,
    /// When it was freed, if stamps are kept and the safe frontier has not passed it; else zero.
    pub(super) freed_at: u64,
    /// The chunk before it in the region. In an unused slab place: the next unused place is in `next`.
    pub(super) previous: Index,
    pub(super) next: Index,
    pub(super) region: Index,
    pub(super) tag: Tag,
    pub(super) kind: MemoryKind,
    /// Whether it is in the index of free chunks.
    pub(super) binned: bool,
    /// Whether its place is in the queue of stamped chunks. Stays with the place when that is used again.
    pub(super) queued: bool,
}

impl Chunk {
    pub(super) fn in_use(&self) -> bool {
        self.record.is_some()
    }

    pub(super) fn end(&self) -> usize {
        self.address + self.size
    }

    /// A free chunk over `size` bytes at `address`.
    pub(super) fn free(address: usize, size: usize, region: Index) -> Self {
        Self {
            address,
            size,
            record: None,
            requested: 0,
            id: AllocationId::NONE,
            freed_at: 0,
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
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    unused: Vec<Index>,
}

impl Slab {
    /// Puts a chunk into the slab. `None` when there are four thousand million already.
    #[inline]
    pub(super) fn insert(&mut self, chunk: Chunk) -> Option<Index> {
        if let Some(index) = self.unused.pop() {
            let queued = self[index].queued;
            self[index] = Chunk { queued, ..chunk };
            return Some(index);
        }
        let index = Index::try_from(self.chunks.len()).ok().filter(|&index| index != NONE)?;
        self.chunks.push(chunk);
        Some(index)
    }

    #[inline]
    pub(super) fn remove(&mut self, index: Index) {
        let chunk = &mut self[index];
        chunk.record = None;
        chunk.size = 0;
        chunk.binned = false;
        self.unused.push(index);
    }

    pub(super) fn get(&self, index: usize) -> Option<&Chunk> {
        self.chunks.get(index)
    }

    pub(super) fn bytes(&self) -> usize {
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

/// A region with the chunk that begins at each of its granules.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) region: Region,
    /// From here on no byte was ever handed out: with a zeroed region they still are zero.
    pub(super) clean_from: usize,
    /// Chunk index plus one at the granule where a chunk begins, else zero. Zeroed lazily by the system:
    /// only pages around chunk starts take memory.
    starts: Vec<u32>,
    granule_log2: u32,
}

impl Mapped {
    /// `None` where there is no memory for the map: address space can be larger than any memory.
    pub(super) fn new(region: Region, granule_log2: u32) -> Option<Self> {
        let starts = zeros(region.bytes >> granule_log2)?;
        Some(Self { clean_from: region.address(), starts, region, granule_log2 })
    }

    pub(super) fn start(&self) -> usize {
        self.region.address()
    }

    pub(super) fn end(&self) -> usize {
        self.start() + self.region.bytes
    }

    #[inline]
    pub(super) fn set(&mut self, address: usize, chunk: Index) {
        let granule = (address - self.start()) >> self.granule_log2;
        self.starts[granule] = chunk + 1;
    }

    #[inline]
    pub(super) fn clear(&mut self, address: usize) {
        let granule = (address - self.start()) >> self.granule_log2;
        self.starts[granule] = 0;
    }

    /// The chunk that begins at `address`, which lies in the region.
    pub(super) fn chunk_at(&self, address: usize) -> Option<Index> {
        let offset = address.checked_sub(self.start())?;
        if offset & ((1 << self.granule_log2) - 1) != 0 {
            return None;
        }
        self.starts.get(offset >> self.granule_log2)?.checked_sub(1)
    }

    pub(super) fn bytes(&self) -> usize {
        self.starts.len() * size_of::<u32>()
    }
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
pub(super) struct Regions {
    slots: Vec<Option<Mapped>>,
    by_address: Vec<(usize, Index)>,
}

impl Regions {
    pub(super) fn insert(&mut self, mapped: Mapped) -> Option<Index> {
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

    pub(super) fn remove(&mut self, index: Index) -> Option<Mapped> {
        self.by_address.retain(|&(_, i)| i != index);
        self.slots.get_mut(index as usize)?.take()
    }

    #[inline]
    pub(super) fn get(&self, index: Index) -> Option<&Mapped> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: Index) -> Option<&mut Mapped> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// The region that contains `address`.
    pub(super) fn containing(&self, address: usize) -> Option<&Mapped> {
        let after = self.by_address.partition_point(|&(start, _)| start <= address);
        let &(_, index) = self.by_address.get(after.checked_sub(1)?)?;
        self.get(index).filter(|mapped| address < mapped.end())
    }

    /// Regions in order of address.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Index, &Mapped)> + '_ {
        self.by_address.iter().filter_map(|&(_, index)| self.get(index).map(|mapped| (index, mapped)))
    }

    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }
}
