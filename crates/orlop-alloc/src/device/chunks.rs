//! Chunks: the pieces of regions, in use or free. What an engine knows of the memory is here; nothing is in it.

use crate::bfc::Free;
use std::ops::{Index as At, IndexMut as AtMut};

/// A chunk's place in its table.
pub(super) type Index = u32;

/// No chunk, no region.
pub(super) const NONE: Index = u32::MAX;

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A block.
    Live,
    /// Given back while other streams may use it: `events` of them are not known to be done.
    Pending,
    /// In the index of its pool.
    Free,
    /// Given back last, and in no index yet.
    Hot,
    /// Addresses without pages.
    Unmapped,
    /// No chunk: a place in the table for the next one.
    Vacant,
}

/// A piece of a region: one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Chunk {
    pub(super) address: usize,
    pub(super) size: usize,
    pub(super) requested: usize,
    /// Of a block the other streams that use it: a bit for each of the first 63, the last for any beyond (see
    /// `Pending::more`). Of a free chunk how often its pool had been searched when it became free.
    pub(super) note: u64,
    /// The chunk before it in its region.
    pub(super) previous: Index,
    /// The chunk behind it; of a vacant place, the next vacant one.
    pub(super) next: Index,
    /// Neighbours in the list of its size.
    pub(super) before: Index,
    pub(super) after: Index,
    pub(super) region: Index,
    /// The stream that may use it without waiting, by number in the engine.
    pub(super) stream: u32,
    /// Events that its other streams have not passed.
    pub(super) events: u32,
    pub(super) pool: u16,
    pub(super) state: State,
    /// Whether it is in the list of [`Borders`](super::borders::Borders).
    pub(super) border: bool,
}

const _: () = assert!(size_of::<Chunk>() == 64);

impl Chunk {
    /// A piece of the same region, pool and stream.
    pub(super) fn sibling(&self, address: usize, size: usize, state: State) -> Self {
        Self {
            address,
            size,
            requested: 0,
            previous: NONE,
            next: NONE,
            state,
            events: 0,
            note: 0,
            before: NONE,
            after: NONE,
            border: false,
            ..*self
        }
    }

    /// Its key where free chunks are in order of size.
    #[inline]
    pub(super) fn as_free(&self, index: Index) -> Free {
        Free { size: self.size, address: self.address, chunk: index }
    }

    /// Whether it is all of its region.
    pub(super) fn is_whole(&self) -> bool {
        self.previous == NONE && self.next == NONE
    }
}

/// All chunks of an engine.
#[derive(Debug)]
pub(super) struct Chunks {
    places: Vec<Chunk>,
    vacant: Index,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: NONE }
    }
}

impl Chunks {
    /// Adds a chunk. `None` if there are 2^32 already.
    pub(super) fn insert(&mut self, chunk: Chunk) -> Option<Index> {
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

    pub(super) fn remove(&mut self, index: Index) {
        let vacant = self.vacant;
        let chunk = &mut self[index];
        (chunk.state, chunk.next) = (State::Vacant, vacant);
        self.vacant = index;
    }

    pub(super) fn get(&self, index: Index) -> Option<&Chunk> {
        self.places.get(index as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Index, &Chunk)> + '_ {
        (0..).zip(&self.places).filter(|(_, chunk)| chunk.state != State::Vacant)
    }

    /// From `first` on, in order of address.
    pub(super) fn walk(&self, first: Index) -> impl Iterator<Item = (Index, &Chunk)> + '_ {
        let some = |index: Index| (index != NONE).then_some(index);
        let following = std::iter::successors(some(first), move |&index| some(self[index].next));
        following.map(|index| (index, &self[index]))
    }

    /// Puts `new` between `index` and what is before it.
    pub(super) fn link_before(&mut self, index: Index, new: Index) {
        let previous = self[index].previous;
        (self[new].previous, self[new].next) = (previous, index);
        self[index].previous = new;
        if previous != NONE {
            self[previous].next = new;
        }
    }

    /// Puts `new` between `index` and what is behind it.
    pub(super) fn link_after(&mut self, index: Index, new: Index) {
        let next = self[index].next;
        (self[new].previous, self[new].next) = (index, next);
        self[index].next = new;
        if next != NONE {
            self[next].previous = new;
        }
    }

    /// Takes a chunk out from between its neighbours.
    pub(super) fn unlink(&mut self, index: Index) {
        let Chunk { previous, next, .. } = self[index];
        if previous != NONE {
            self[previous].next = next;
        }
        if next != NONE {
            self[next].previous = previous;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Chunk>()
    }
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
