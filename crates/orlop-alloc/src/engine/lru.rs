//! Cached blocks by exact size, with the order in which they came.

use crate::Record;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

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
        self.0 = spread(self.0 ^ value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// 2^64 divided by the golden ratio: the high half of the product is well mixed, the table uses both ends.
#[inline]
fn spread(value: u64) -> u64 {
    let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// Place of an entry; `NONE` ends the list.
type Index = usize;
const NONE: Index = usize::MAX;

#[derive(Debug)]
struct Entry {
    /// The record of memory that nobody uses; its token is its class. `None` in an unused place.
    record: Option<Box<Record>>,
    newer: Index,
    older: Index,
}

/// The blocks of one size, oldest first.
#[derive(Debug, Default)]
struct Class {
    entries: VecDeque<Index>,
}

/// How many sizes are found without the map.
const RECENT: usize = 256;

/// The cache. A size's blocks are used newest first; eviction takes the oldest of all, which is the oldest
/// of its size.
#[derive(Debug)]
pub(super) struct Lru {
    by_size: HashMap<usize, usize, BuildHasherDefault<SizeHasher>>,
    /// Sizes looked up lately and their classes, by a few bits of their hash. Size 0 is not used.
    recent: Box<[(usize, usize); RECENT]>,
    classes: Vec<Class>,
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
            by_size: HashMap::default(),
            recent: Box::new([(0, 0); RECENT]),
            classes: Vec::new(),
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

    /// The class of a size, which is not 0; a new one if it was never seen.
    #[inline]
    pub(super) fn class(&mut self, size: usize) -> usize {
        let place = (spread(size as u64) >> 20) as usize % RECENT;
        let (known, class) = self.recent[place];
        if known == size {
            return class;
        }
        let next = self.classes.len();
        let class = *self.by_size.entry(size).or_insert(next);
        if class == next {
            self.classes.push(Class::default());
        }
        self.recent[place] = (size, class);
        class
    }

    /// The newest block of exactly this size.
    #[inline]
    pub(super) fn take(&mut self, size: usize) -> Option<Box<Record>> {
        let class = self.class(size);
        let Some(index) = self.classes[class].entries.pop_back() else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.unlink(index)
    }

    /// Keeps a block, whose token is its class.
    #[inline]
    pub(super) fn put(&mut self, record: Box<Record>) {
        self.puts += 1;
        let class = record.token;
        let entry = Entry { record: Some(record), newer: NONE, older: self.newest };
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
        self.classes[class].entries.push_back(index);
    }

    /// The block that has waited longest, if there is no room for one more.
    #[inline]
    pub(super) fn evict_for_one(&mut self) -> Option<Box<Record>> {
        if self.held < self.bound { None } else { self.evict() }
    }

    /// The block that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<Box<Record>> {
        let index = self.oldest;
        let class = self.entries.get(index)?.record.as_ref()?.token;
        self.classes[class].entries.pop_front();
        self.unlink(index)
    }

    #[cold]
    fn evict(&mut self) -> Option<Box<Record>> {
        let evicted = self.take_oldest()?;
        self.evictions += 1;
        // TensorFlow's rule: if more than 0.2 % of the puts are evictions and more than 0.2 % of the requests
        // find nothing, the bound is a tenth too small (at least 100 in all).
        let requests = self.hits + self.misses;
        let too_small = self.evictions * 500 > self.puts && self.misses * 500 > requests;
        if self.grows && self.evictions % CHECK_EVERY == 0 && too_small {
            self.bound = (self.bound + self.bound / 10).max(100);
        }
        Some(evicted)
    }

    #[inline]
    fn unlink(&mut self, index: Index) -> Option<Box<Record>> {
        let entry = &mut self.entries[index];
        let (record, newer, older) = (entry.record.take(), entry.newer, entry.older);
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
        record
    }

    /// Bytes of the cache's own records.
    pub(super) fn metadata(&self) -> usize {
        let classes: usize = self.classes.iter().map(|class| class.entries.capacity()).sum();
        self.entries.capacity() * size_of::<Entry>()
            + (self.unused.capacity() + classes) * size_of::<Index>()
            + self.classes.capacity() * size_of::<Class>()
            + self.by_size.capacity() * size_of::<(usize, usize)>()
            + size_of::<[(usize, usize); RECENT]>()
    }
}
