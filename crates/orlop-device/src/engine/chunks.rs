//! The table of chunks. All metadata is here; nothing is kept in the memory itself.

use orlop_alloc::engine_support::FreeChunk;
use std::ops::{Index as At, IndexMut as AtMut};

/// The index of a chunk in its table, or of a region in its own.
pub(crate) type Index = u32;

/// No chunk, or no region.
pub(crate) const NONE: Index = u32::MAX;

/// The state of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// In a block.
    Live,
    /// Freed, while `events` of the other streams may still use it.
    Pending,
    /// Free, in the index of its pool.
    Free,
    /// Free, freed last, and in no index.
    LastFreed,
    /// Addresses without pages.
    Unmapped,
    /// Taken out of its index by a slow path, which calls the device for it.
    Claimed,
    /// Its release failed: it stays reserved, is in no index and is never used again.
    Leaked,
    /// A vacant entry of the table.
    Vacant,
}

/// A contiguous part of a region, in use or free: one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Chunk {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) requested: usize,
    /// Of a block, the other streams that use it: a bit for each of the first 63, the last bit for all beyond
    /// (see `PendingFrees::more`). Of a free chunk, the number of searches of its pool before it became free:
    /// its age.
    pub(crate) note: u64,
    /// The chunk below it in its region.
    pub(crate) previous: Index,
    /// The chunk above it in its region; of a vacant entry, the next vacant one.
    pub(crate) next: Index,
    /// The links of the free list that it is in.
    pub(crate) before: Index,
    /// Of a block of the watched stream, the number of its request in the
    /// [`StreamPeriod`](crate::period::StreamPeriod).
    pub(crate) after: Index,
    pub(crate) region: Index,
    /// The number of the stream that may use it without waiting.
    pub(crate) stream: u32,
    /// Events of its other streams that are not complete.
    pub(crate) events: u32,
    pub(crate) pool: u16,
    pub(crate) state: ChunkState,
    /// Whether it is in the list of [`StreamBorders`](super::stream_borders::StreamBorders).
    pub(crate) border: bool,
}

const _: () = assert!(size_of::<Chunk>() == 64);

impl Chunk {
    /// Creates a chunk without neighbours, in no list.
    pub(crate) fn new(
        region: Index,
        pool: u16,
        stream: u32,
        address: usize,
        size: usize,
        state: ChunkState,
    ) -> Self {
        Self {
            address,
            size,
            requested: 0,
            note: 0,
            previous: NONE,
            next: NONE,
            before: NONE,
            after: NONE,
            region,
            stream,
            events: 0,
            pool,
            state,
            border: false,
        }
    }

    /// Returns a new chunk of the same region, pool and stream.
    pub(crate) fn sibling(&self, address: usize, size: usize, state: ChunkState) -> Self {
        Self::new(self.region, self.pool, self.stream, address, size, state)
    }

    /// Returns its key in an index of free chunks by size.
    #[inline]
    pub(crate) fn as_free(&self, index: Index) -> FreeChunk {
        FreeChunk { size: self.size, address: self.address, chunk: index }
    }

    /// Returns `true` if an address lies in it.
    #[inline]
    pub(crate) fn covers(&self, address: usize) -> bool {
        address.wrapping_sub(self.address) < self.size
    }

    /// Returns `true` if it is all of its region.
    pub(crate) fn is_whole(&self) -> bool {
        self.previous == NONE && self.next == NONE
    }
}

/// The chunks of an engine, and the vacant entries among them.
#[derive(Debug)]
pub(crate) struct Chunks {
    places: Vec<Chunk>,
    vacant: Index,
    /// Of each region, what is added to its addresses so that those of later regions are above.
    shifts: Vec<usize>,
    /// The end of the shifted addresses.
    shifted_end: usize,
    /// The number of each chunk in the order in which chunks are made, if the policy orders by it.
    serials: Option<Vec<usize>>,
    next_serial: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        let (places, shifts, serials) = (Vec::new(), Vec::new(), None);
        Self { places, vacant: NONE, shifts, shifted_end: 0, serials, next_serial: 0 }
    }
}

impl Chunks {
    /// Notes that a region is the youngest one.
    pub(crate) fn add_region(&mut self, region: Index, address: usize, bytes: usize) {
        let place = region as usize;
        if place >= self.shifts.len() {
            self.shifts.resize(place + 1, 0);
        }
        self.shifts[place] = self.shifted_end.wrapping_sub(address);
        self.shifted_end = self.shifted_end.wrapping_add(bytes);
    }

    /// Returns a number by which addresses are in order of their region's age, and inside of one region in
    /// their own. (It is exact until 2^64 bytes were allocated.)
    #[inline]
    pub(crate) fn by_age(&self, region: Index, address: usize) -> usize {
        self.shifts[region as usize].wrapping_add(address)
    }

    /// Numbers the chunks that are made from now on.
    pub(crate) fn number_chunks(&mut self) {
        self.serials = Some(Vec::new());
    }

    /// Returns the number of a chunk in the order in which chunks are made; 0 without numbers.
    pub(crate) fn serial(&self, index: Index) -> usize {
        self.serials.as_ref().and_then(|serials| serials.get(index as usize)).copied().unwrap_or(0)
    }

    /// Adds a chunk. `None` if there are 2^32.
    pub(crate) fn insert(&mut self, chunk: Chunk) -> Option<Index> {
        let index = self.place(chunk)?;
        if let Some(serials) = &mut self.serials {
            if serials.len() <= index as usize {
                serials.resize(index as usize + 1, 0);
            }
            serials[index as usize] = self.next_serial;
            self.next_serial += 1;
        }
        Some(index)
    }

    fn place(&mut self, chunk: Chunk) -> Option<Index> {
        if self.vacant != NONE {
            let index = self.vacant;
            self.vacant = self[index].next;
            self[index] = chunk;
            return Some(index);
        }
        let index = Index::try_from(self.places.len()).ok().filter(|&index| index != NONE)?;
        self.places.push(chunk);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: Index) {
        let vacant = self.vacant;
        let chunk = &mut self[index];
        (chunk.state, chunk.next) = (ChunkState::Vacant, vacant);
        self.vacant = index;
    }

    pub(crate) fn get(&self, index: Index) -> Option<&Chunk> {
        self.places.get(index as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut Chunk> {
        self.places.get_mut(index as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Chunk)> + '_ {
        (0..).zip(&self.places).filter(|(_, chunk)| chunk.state != ChunkState::Vacant)
    }

    /// Returns the chunks of a region from `first` on, in order of address.
    pub(crate) fn walk(&self, first: Index) -> impl Iterator<Item = (Index, &Chunk)> + '_ {
        let some = |index: Index| (index != NONE).then_some(index);
        let following = std::iter::successors(some(first), move |&index| some(self[index].next));
        following.map(|index| (index, &self[index]))
    }

    /// Links `new` between `index` and its lower neighbour.
    pub(crate) fn link_before(&mut self, index: Index, new: Index) {
        let previous = self[index].previous;
        (self[new].previous, self[new].next) = (previous, index);
        self[index].previous = new;
        if previous != NONE {
            self[previous].next = new;
        }
    }

    /// Links `new` between `index` and its upper neighbour.
    pub(crate) fn link_after(&mut self, index: Index, new: Index) {
        let next = self[index].next;
        (self[new].previous, self[new].next) = (index, next);
        self[index].next = new;
        if next != NONE {
            self[next].previous = new;
        }
    }

    /// Unlinks a chunk from its neighbours.
    pub(crate) fn unlink(&mut self, index: Index) {
        let Chunk { previous, next, .. } = self[index];
        if previous != NONE {
            self[previous].next = next;
        }
        if next != NONE {
            self[next].previous = previous;
        }
    }

    /// Returns the address of the table, which may move when a chunk is added.
    #[inline(always)]
    pub(crate) fn address(&self) -> *const Chunk {
        self.places.as_ptr()
    }

    /// Prefetches a chunk, if there is one.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: Index) {
        if index != NONE {
            prefetch(self.address(), index);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Chunk>()
    }
}

/// Prefetches a chunk of a table, for which any address will do.
#[inline(always)]
pub(crate) fn prefetch(table: *const Chunk, index: Index) {
    let chunk = table.wrapping_add(index as usize);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing: it is a hint, and one of an invalid address does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(chunk.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = chunk;
}

impl At<Index> for Chunks {
    type Output = Chunk;

    #[inline]
    fn index(&self, index: Index) -> &Chunk {
        &self.places[index as usize]
    }
}

impl AtMut<Index> for Chunks {
    #[inline]
    fn index_mut(&mut self, index: Index) -> &mut Chunk {
        &mut self.places[index as usize]
    }
}
