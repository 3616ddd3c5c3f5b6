//! The index of the free chunks of one pool and stream, by size.

use super::chunks::{Chunk, Chunks, Index, NONE};
use crate::policy::IndexKind;
use orlop_alloc::engine_support::first_one_from;
use orlop_alloc::engine_support::{FreeChunk, Position, SortedRuns};
use orlop_core::torch::TieRule;

/// Sizes below this many granules have a list each; above, 32 lists share a power of two.
const STEPS: usize = 32;

/// A search looks at this many chunks of a list whose chunks may be too small, before it takes from the next
/// list.
const TRIES: usize = 3;

/// An index of free chunks, of the kind that the policy chooses.
#[derive(Debug)]
pub(crate) enum FreeChunks {
    Ordered {
        runs: SortedRuns<FreeChunk>,
        /// The order of equal sizes.
        ties: TieRule,
    },
    Segregated(Lists),
}

impl FreeChunks {
    pub(crate) fn new(kind: IndexKind, ties: TieRule, granule: usize) -> Self {
        match kind {
            IndexKind::Ordered => Self::Ordered { runs: SortedRuns::default(), ties },
            IndexKind::Segregated => Self::Segregated(Lists::new(granule)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Ordered { runs, .. } => runs.is_empty(),
            Self::Segregated(lists) => lists.len == 0,
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, chunks: &mut Chunks, chunk: Index) {
        match self {
            Self::Ordered { runs, ties } => runs.insert(key(chunks, chunk, *ties)),
            Self::Segregated(lists) => lists.insert(chunks, chunk, chunks[chunk].size),
        }
    }

    /// Removes a chunk. Returns `false` if it was not there; lists require that it is.
    #[inline]
    pub(crate) fn remove(&mut self, chunks: &mut Chunks, chunk: Index) -> bool {
        match self {
            Self::Ordered { runs, ties } => runs.remove(key(chunks, chunk, *ties)),
            Self::Segregated(lists) => {
                lists.remove(chunks, chunk, chunks[chunk].size);
                true
            }
        }
    }

    /// Finds the chunk for a request of `size` bytes: the smallest that fits and the first of those, or one
    /// that fits well. Returns its position too, so that [`FreeChunks::remove_found`] needs no second search.
    #[inline]
    pub(crate) fn find(&self, chunks: &Chunks, size: usize) -> Option<(Index, Option<Position>)> {
        match self {
            Self::Ordered { runs, .. } => {
                let (position, free) = runs.first_from(FreeChunk { size, address: 0, chunk: 0 })?;
                Some((free.chunk, Some(position)))
            }
            Self::Segregated(lists) => lists.find(chunks, size).map(|chunk| (chunk, None)),
        }
    }

    /// Removes a chunk at the position where it was just found.
    #[inline]
    pub(crate) fn remove_found(&mut self, chunks: &mut Chunks, chunk: Index, position: Option<Position>) {
        match (self, position) {
            (Self::Ordered { runs, .. }, Some(position)) => {
                let taken = runs.take(position);
                debug_assert_eq!(taken.chunk, chunk, "found elsewhere");
            }
            (this, _) => {
                let removed = this.remove(chunks, chunk);
                debug_assert!(removed, "found, and not in the index");
            }
        }
    }

    /// Returns the chunk of exactly `size` bytes at an address. Lists have no order, and find none.
    pub(crate) fn at(&self, chunks: &Chunks, size: usize, address: usize) -> Option<Index> {
        let Self::Ordered { runs, ties } = self else { return None };
        let first = if *ties == TieRule::LowestAddress { address } else { 0 };
        let sized = runs.from(FreeChunk { size, address: first, chunk: 0 });
        let mut sized = sized.map(|free| free.chunk).take_while(|&chunk| chunks[chunk].size == size);
        sized.find(|&chunk| chunks[chunk].address == address)
    }

    /// Returns the chunks of at least `size` bytes, by size and their order. Lists have none, and return
    /// none.
    pub(crate) fn at_least(&self, size: usize) -> Box<dyn Iterator<Item = Index> + '_> {
        match self {
            Self::Ordered { runs, .. } => {
                Box::new(runs.from(FreeChunk { size, address: 0, chunk: 0 }).map(|free| free.chunk))
            }
            Self::Segregated(_) => Box::new(std::iter::empty()),
        }
    }

    /// Returns all chunks; lists in no order.
    pub(crate) fn all(&self, chunks: &Chunks) -> Vec<Index> {
        match self {
            Self::Ordered { runs, .. } => runs.iter().map(|free| free.chunk).collect(),
            Self::Segregated(lists) => lists.from(chunks, 0).collect(),
        }
    }

    /// Adds the chunks of at least `size` bytes to a list, and perhaps some that are slightly smaller.
    pub(crate) fn add_large(&self, chunks: &Chunks, size: usize, to: &mut Vec<Index>) {
        match self {
            Self::Ordered { runs, .. } => {
                to.extend(runs.from(FreeChunk { size, address: 0, chunk: 0 }).map(|free| free.chunk));
            }
            Self::Segregated(lists) => to.extend(lists.from(chunks, lists.list(size))),
        }
    }
}

/// Returns the place of a chunk in an ordered index.
#[inline]
fn key(chunks: &Chunks, chunk: Index, ties: TieRule) -> FreeChunk {
    let Chunk { size, address, region, .. } = chunks[chunk];
    let address = match ties {
        TieRule::LowestAddress => address,
        TieRule::OldestBlock => chunks.serial(chunk),
        _ => chunks.by_age(region, address),
    };
    FreeChunk { size, address, chunk }
}

/// Segregated free lists, linked through the chunks, and a bit for each list that is not empty.
#[derive(Debug)]
pub(crate) struct Lists {
    heads: Box<[Index]>,
    filled: Box<[u64]>,
    /// The words of `filled` behind this one were always zero: few lists are of sizes that occur.
    last_word: usize,
    granule_log2: u32,
    len: usize,
}

impl Lists {
    fn new(granule: usize) -> Self {
        let granule_log2 = granule.max(1).ilog2();
        // The largest size is below 2^63.
        let lists = list_of(usize::MAX >> granule_log2) + 1;
        let filled = vec![0; lists.div_ceil(64)].into_boxed_slice();
        Self { heads: vec![NONE; lists].into_boxed_slice(), filled, last_word: 0, granule_log2, len: 0 }
    }

    #[inline]
    fn list(&self, size: usize) -> usize {
        list_of(size >> self.granule_log2)
    }

    #[inline]
    fn insert(&mut self, chunks: &mut Chunks, chunk: Index, size: usize) {
        let list = self.list(size);
        let head = std::mem::replace(&mut self.heads[list], chunk);
        (chunks[chunk].before, chunks[chunk].after) = (NONE, head);
        if head != NONE {
            chunks[head].before = chunk;
        }
        self.filled[list / 64] |= 1 << (list % 64);
        self.last_word = self.last_word.max(list / 64);
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, chunks: &mut Chunks, chunk: Index, size: usize) {
        let (before, after) = (chunks[chunk].before, chunks[chunk].after);
        if after != NONE {
            chunks[after].before = before;
        }
        if before != NONE {
            chunks[before].after = after;
        } else {
            let list = self.list(size);
            self.heads[list] = after;
            if after == NONE {
                self.filled[list / 64] &= !(1 << (list % 64));
            }
        }
        self.len -= 1;
    }

    #[inline]
    fn find(&self, chunks: &Chunks, size: usize) -> Option<Index> {
        let own = self.list(size);
        let fitting = self.walk(chunks, own).take(TRIES).find(|&chunk| chunks[chunk].size >= size);
        let later = || self.filled_from(own + 1).map(|list| self.heads[list]);
        // Growth costs more than a look at every chunk.
        let last = || self.walk(chunks, own).skip(TRIES).find(|&chunk| chunks[chunk].size >= size);
        fitting.or_else(later).or_else(last)
    }

    fn walk<'a>(&'a self, chunks: &'a Chunks, list: usize) -> impl Iterator<Item = Index> + 'a {
        let some = |index: Index| (index != NONE).then_some(index);
        std::iter::successors(some(self.heads[list]), move |&index| some(chunks[index].after))
    }

    /// Returns the first list from `list` on that is not empty.
    #[inline]
    fn filled_from(&self, list: usize) -> Option<usize> {
        first_one_from(&self.filled[..=self.last_word], list)
    }

    fn from<'a>(&'a self, chunks: &'a Chunks, list: usize) -> impl Iterator<Item = Index> + 'a {
        let filled = std::iter::successors(self.filled_from(list), |&list| self.filled_from(list + 1));
        filled.flat_map(|list| self.walk(chunks, list))
    }
}

/// Returns the list for chunks of `granules` granules. Lists ascend with size.
#[inline]
fn list_of(granules: usize) -> usize {
    if granules < STEPS {
        return granules;
    }
    let log2 = granules.ilog2() as usize;
    let step = (granules >> (log2 - STEPS.ilog2() as usize)) - STEPS;
    (log2 - STEPS.ilog2() as usize + 1) * STEPS + step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_ascend_and_small_sizes_have_their_own() {
        assert!((0..STEPS * 2).all(|granules| list_of(granules) == granules));
        let each = if cfg!(miri) { 2_000 } else { 40_000 };
        let sizes = (0..each).chain((16..50).map(|log2| 1_usize << log2));
        let lists: Vec<usize> = sizes.map(list_of).collect();
        assert!(lists.is_sorted());
        assert!(lists.windows(2).take(each - 1).all(|pair| pair[1] - pair[0] <= 1), "no list is skipped");
    }
}
