//! Cached blocks by exact size, with the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;

/// A block that nobody uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cached {
    pub(super) ptr: NonNull<u8>,
    /// The region's size.
    pub(super) bytes: usize,
    /// The rounded size it is found by.
    pub(super) key: usize,
}

// SAFETY: it belongs to the cache, whichever thread visits it.
unsafe impl Send for Cached {}

/// The sizes of a program are few and even: spread them with one multiplication.
#[derive(Debug, Default)]
struct SizeHasher(u64);

impl Hasher for SizeHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(byte.into());
        }
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        // 2^64 divided by the golden ratio; the high half is the well-mixed one, the table uses both ends.
        let product = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Place of an entry; `NONE` ends the list.
type Index = usize;
const NONE: Index = usize::MAX;

#[derive(Debug)]
struct Entry {
    cached: Cached,
    newer: Index,
    older: Index,
}

/// The cache. A size's blocks are used newest first; eviction takes the oldest of all, which is the oldest
/// of its size.
#[derive(Debug)]
pub(super) struct Lru {
    classes: HashMap<usize, VecDeque<Index>, BuildHasherDefault<SizeHasher>>,
    entries: Vec<Entry>,
    unused: Vec<Index>,
    newest: Index,
    oldest: Index,
    held: usize,
    bound: usize,
    grows: bool,
    puts: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

/// Bounds are reconsidered once in so many evictions (TensorFlow: `kCheckInterval`).
const CHECK_EVERY: u64 = 1000;

impl Lru {
    pub(super) fn new(bound: usize, grows: bool) -> Self {
        Self {
            classes: HashMap::default(),
            entries: Vec::new(),
            unused: Vec::new(),
            newest: NONE,
            oldest: NONE,
            held: 0,
            bound,
            grows,
            puts: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
        }
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The newest block of exactly this size.
    #[inline]
    pub(super) fn take(&mut self, key: usize) -> Option<Cached> {
        let Some(index) = self.classes.get_mut(&key).and_then(VecDeque::pop_back) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        Some(self.unlink(index))
    }

    /// Keeps a block, and says which one must go for it.
    #[inline]
    pub(super) fn put(&mut self, cached: Cached) -> Option<Cached> {
        if self.bound == 0 {
            return Some(cached);
        }
        self.puts += 1;
        let entry = Entry { cached, newer: NONE, older: self.newest };
        let index = match self.unused.pop() {
            Some(index) => {
                self.entries[index] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        match self.entries.get_mut(self.newest) {
            Some(newest) => newest.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
        self.held += 1;
        self.classes.entry(cached.key).or_default().push_back(index);
        (self.held > self.bound).then(|| self.evict()).flatten()
    }

    /// The block that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<Cached> {
        let index = self.oldest;
        let key = self.entries.get(index)?.cached.key;
        if let Some(class) = self.classes.get_mut(&key) {
            class.pop_front();
            if class.is_empty() {
                self.classes.remove(&key);
            }
        }
        Some(self.unlink(index))
    }

    #[cold]
    fn evict(&mut self) -> Option<Cached> {
        let evicted = self.take_oldest();
        self.evictions += 1;
        // TensorFlow's rule: if more than 0.2 % of the puts are evictions and more than 0.2 % of the requests
        // find nothing, the bound is a tenth too small (at least 100 in all).
        let requests = self.hits + self.misses;
        let too_small = self.evictions * 500 > self.puts && self.misses * 500 > requests;
        if self.grows && self.evictions % CHECK_EVERY == 0 && too_small {
            self.bound = (self.bound + self.bound / 10).max(100);
        }
        evicted
    }

    #[inline]
    fn unlink(&mut self, index: Index) -> Cached {
        let Entry { cached, newer, older } = self.entries[index];
        match self.entries.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        self.unused.push(index);
        self.held -= 1;
        cached
    }

    /// Bytes of the cache's own records.
    pub(super) fn metadata(&self) -> usize {
        let classes: usize = self.classes.values().map(|class| class.capacity() * size_of::<Index>()).sum();
        self.entries.capacity() * size_of::<Entry>()
            + self.unused.capacity() * size_of::<Index>()
            + self.classes.capacity() * size_of::<(usize, VecDeque<Index>)>()
            + classes
    }
}
