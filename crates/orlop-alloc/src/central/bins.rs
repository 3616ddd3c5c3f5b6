//! Free chunks by size: 21 bins, each ordered by (size, address).

use super::sorted_runs::SortedRuns;
use orlop_core::Alignment;
use std::cmp::Ordering;

/// How many bins there are (T8). The last one takes everything from 256 MiB on, at 256-byte granules.
pub(crate) const BINS: usize = 21;

/// A free chunk as the index knows it. Ordered by size, then address: the first that fits is the best fit,
/// and among equals the lowest.
#[derive(Debug, Clone, Copy)]
pub struct Free {
    /// Its bytes.
    pub size: usize,
    /// Its first address.
    pub address: usize,
    /// Its index in the engine's table of chunks.
    pub chunk: u32,
}

/// The chunk's place in the slab says nothing about its order: addresses are unique.
impl Ord for Free {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Free {
    /// Size and address as one number: compared in two instructions and no jump, which a search at random places would
    /// mostly not foresee.
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

/// Free chunks, found by size. A policy of search: which of those that fit is taken.
pub(crate) trait FreeIndex: std::fmt::Debug + Send {
    /// Over chunks whose sizes are multiples of this.
    fn new(granule: Alignment) -> Self;

    /// Adds a chunk that is not there.
    fn insert(&mut self, free: Free);

    /// Removes a chunk; false if it was not there.
    fn remove(&mut self, free: Free) -> bool;

    /// Takes a chunk of at least `size` bytes, which is a size that requests are rounded to.
    fn take(&mut self, size: usize) -> Option<Free>;

    /// Chunks of at least `size` bytes, in the order of preference as far as there is one.
    fn at_least(&self, size: usize) -> impl Iterator<Item = Free> + '_;

    /// The size of the largest chunk.
    fn largest(&self) -> usize;

    /// All chunks.
    fn iter(&self) -> impl Iterator<Item = Free> + '_;

    /// Bytes of its own records.
    fn bytes(&self) -> usize;

    /// Gives back what is kept for chunks with higher numbers than there are.
    fn shrink(&mut self, chunks: usize) {
        let _ = chunks;
    }
}

/// The bin for chunks of `size` bytes.
#[inline]
pub(crate) fn bin_of(size: usize, granule: Alignment) -> usize {
    let granules = (size >> granule.log2()).max(1);
    (granules.ilog2() as usize).min(BINS - 1)
}

/// The smallest size in bin `bin`.
pub(crate) fn lower_bound(bin: usize, granule: Alignment) -> usize {
    granule.bytes() << bin
}

/// Best fit, lowest address first.
///
/// Bins are ranges of size, so going through them in order is going through one list ordered by size. They
/// are there for speed, and for the report: people read fragmentation by bin.
#[derive(Debug)]
pub(crate) struct Bins {
    bins: [SortedRuns<Free>; BINS],
    /// Bit `i`: bin `i` is not empty.
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

    /// Takes the smallest free chunk of at least `size` bytes; of several, the lowest.
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

    /// Free chunks of at least `size` bytes, smallest first.
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

/// Returns the position of the first set bit at or after position `from` in `words`, 64 bits each.
#[inline]
#[must_use]
pub fn first_one_from(words: &[u64], from: usize) -> Option<usize> {
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

/// The positions of the ones in a word, lowest first.
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
