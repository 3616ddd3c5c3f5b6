//! Free chunks by size: 21 bins, each ordered by (size, address).

use super::sorted_runs::SortedRuns;
use orlop_core::Alignment;
use std::cmp::Ordering;

/// The number of bins. With granules of 256 bytes, the last bin has all chunks from 256 MiB on.
pub(crate) const BINS: usize = 21;

/// An entry of the index of free chunks. Ordered by size, then address: the first entry that fits is the best
/// fit, and of several equal ones the lowest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Free {
    pub(crate) size: usize,
    pub(crate) address: usize,
    pub(crate) chunk: u32,
}

/// The slab index takes no part in the order: addresses are unique.
impl Ord for Free {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Free {
    /// Returns size and address as one number: two instructions compare it without a branch, which a search
    /// at random positions would mispredict.
    #[inline]
    fn key(&self) -> u128 {
        (self.size as u128) << 64 | self.address as u128
    }
}

impl PartialOrd for Free {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.key() < other.key()
    }
}

impl PartialEq for Free {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Free {}

/// An index of free chunks by size. The implementation decides which of the fitting chunks is taken.
pub(crate) trait FreeIndex: std::fmt::Debug + Send {
    /// Creates an empty index of chunks whose sizes are multiples of `granule`.
    fn new(granule: Alignment) -> Self;

    /// Adds a chunk that is not in the index.
    fn insert(&mut self, free: Free);

    /// Removes a chunk. Returns `false` if it was not in the index.
    fn remove(&mut self, free: Free) -> bool;

    /// Takes a chunk of at least `size` bytes. `size` is one that requests are rounded to.
    fn take(&mut self, size: usize) -> Option<Free>;

    /// Iterates over chunks of at least `size` bytes, in the order of preference if there is one.
    fn at_least(&self, size: usize) -> impl Iterator<Item = Free> + '_;

    /// Returns the size of the largest chunk.
    fn largest(&self) -> usize;

    /// Iterates over all chunks.
    fn iter(&self) -> impl Iterator<Item = Free> + '_;

    /// Returns the bytes of the index itself.
    fn bytes(&self) -> usize;

    /// Releases memory kept for chunk indices from `chunks` on.
    fn shrink(&mut self, chunks: usize) {
        let _ = chunks;
    }
}

/// Returns the bin for chunks of `size` bytes.
#[inline]
pub(crate) fn bin_of(size: usize, granule: Alignment) -> usize {
    let granules = (size >> granule.log2()).max(1);
    (granules.ilog2() as usize).min(BINS - 1)
}

/// Returns the smallest size of a bin.
pub(crate) fn lower_bound(bin: usize, granule: Alignment) -> usize {
    granule.bytes() << bin
}

/// The index for best fit, lowest address first.
///
/// Bins are ranges of sizes, so iterating over them in order is iterating over one list ordered by size. They
/// make the search faster, and the report shows fragmentation by bin.
#[derive(Debug)]
pub(crate) struct Bins {
    bins: [SortedRuns<Free>; BINS],
    /// Bit `i` is set if bin `i` is not empty.
    filled: u32,
    granule: Alignment,
}

impl Bins {
    #[inline]
    fn of(&self, size: usize) -> usize {
        bin_of(size, self.granule)
    }
}

impl FreeIndex for Bins {
    fn new(granule: Alignment) -> Self {
        Self { bins: Default::default(), filled: 0, granule }
    }

    #[inline]
    fn insert(&mut self, free: Free) {
        let bin = self.of(free.size);
        self.bins[bin].insert(free);
        self.filled |= 1 << bin;
    }

    #[inline]
    fn remove(&mut self, free: Free) -> bool {
        let bin = self.of(free.size);
        let removed = self.bins[bin].remove(free);
        if self.bins[bin].is_empty() {
            self.filled &= !(1 << bin);
        }
        removed
    }

    /// Takes the smallest free chunk of at least `size` bytes, and of several the lowest.
    #[inline]
    fn take(&mut self, size: usize) -> Option<Free> {
        let first = self.of(size);
        let found = match self.filled & (1 << first) {
            0 => None,
            _ => self.bins[first].take_first_from(Free { size, address: 0, chunk: 0 }),
        };
        let (bin, free) = match found {
            Some(free) => (first, free),
            None => {
                let later = self.filled & !((2 << first) - 1);
                let bin = (later != 0).then(|| later.trailing_zeros() as usize)?;
                (bin, self.bins[bin].take_first()?)
            }
        };
        if self.bins[bin].is_empty() {
            self.filled &= !(1 << bin);
        }
        Some(free)
    }

    /// Iterates over free chunks of at least `size` bytes, smallest first.
    #[inline]
    fn at_least(&self, size: usize) -> impl Iterator<Item = Free> + '_ {
        let first = self.of(size);
        let key = Free { size, address: 0, chunk: 0 };
        let later = self.filled & !((2 << first) - 1);
        self.bins[first].from(key).chain(Ones(later).flat_map(|bin| self.bins[bin].iter()))
    }

    fn largest(&self) -> usize {
        self.filled.checked_ilog2().and_then(|bin| self.bins[bin as usize].last()).map_or(0, |free| free.size)
    }

    fn iter(&self) -> impl Iterator<Item = Free> + '_ {
        self.bins.iter().flat_map(SortedRuns::iter)
    }

    fn bytes(&self) -> usize {
        self.bins.iter().map(SortedRuns::bytes).sum()
    }
}

/// Returns the position of the first set bit in `words` at `from` or after it.
#[inline]
pub(crate) fn first_one_from(words: &[u64], from: usize) -> Option<usize> {
    let first = from / 64;
    let mut word = *words.get(first)? & (u64::MAX << (from % 64));
    for index in first.. {
        if word != 0 {
            return Some(64 * index + word.trailing_zeros() as usize);
        }
        word = *words.get(index + 1)?;
    }
    None
}

/// Iterates over the positions of the set bits of a word, lowest first.
struct Ones(u32);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(bit as usize)
    }
}
