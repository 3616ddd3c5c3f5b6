//! Cached blocks by exact size, with the order in which they came.
//!
//! A size's blocks are a stack: the newest is used first. Eviction takes the oldest of all, which is at the
//! bottom of its stack. Which stack that is, a log of arrivals tells; entries of blocks that were used since
//! stay in the log until they come to its front or it is swept. So the common path, put and take of one size,
//! writes one log entry and follows no links.

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

/// A cached block: when it came, and its record, whose token is its class.
#[derive(Debug)]
struct Cached {
    arrived: u64,
    /// Repeated from the record, so that counting need not wait for it to come from memory.
    granted: usize,
    record: Box<Record>,
}

/// An entry of the log.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    class: usize,
    arrived: u64,
}

/// How many sizes are found without the map.
const RECENT: usize = 256;

/// The cache.
#[derive(Debug)]
pub(super) struct Lru {
    by_size: HashMap<usize, usize, BuildHasherDefault<SizeHasher>>,
    /// Sizes looked up lately and their classes, by a few bits of their hash. Size 0 is not used.
    recent: Box<[(usize, usize); RECENT]>,
    /// The blocks of each size, oldest first.
    classes: Vec<VecDeque<Cached>>,
    log: VecDeque<Arrival>,
    held: usize,
    bound: usize,
    grows: bool,
    puts: u64,
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
            log: VecDeque::new(),
            held: 0,
            bound,
            grows,
            puts: 0,
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
        if known == size { class } else { self.look_up(size, place) }
    }

    #[cold]
    fn look_up(&mut self, size: usize, place: usize) -> usize {
        let next = self.classes.len();
        let class = *self.by_size.entry(size).or_insert(next);
        if class == next {
            self.classes.push(VecDeque::new());
        }
        self.recent[place] = (size, class);
        class
    }

    /// The newest block of exactly this size, and its granted bytes.
    #[inline]
    pub(super) fn take(&mut self, size: usize) -> Option<(Box<Record>, usize)> {
        let class = self.class(size);
        match self.classes[class].pop_back() {
            Some(cached) => {
                self.held -= 1;
                Some((cached.record, cached.granted))
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Whether one block more would pass the bound.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.held >= self.bound
    }

    /// Keeps a block, whose token is its class.
    #[inline]
    pub(super) fn put(&mut self, record: Box<Record>) {
        self.puts += 1;
        self.held += 1;
        let (class, granted, arrived) = (record.token, record.granted, self.puts);
        self.classes[class].push_back(Cached { arrived, granted, record });
        if self.log.len() == self.log.capacity() {
            self.sweep();
        }
        self.log.push_back(Arrival { class, arrived });
    }

    /// Drops log entries of blocks that are no longer cached. Done when the log is full, and leaves it at
    /// most a fifth full: a fraction of an entry's work per put.
    #[cold]
    fn sweep(&mut self) {
        let classes = &self.classes;
        self.log.retain(|entry| {
            // Blocks of a class arrived in order.
            let found = classes[entry.class].binary_search_by_key(&entry.arrived, |cached| cached.arrived);
            found.is_ok()
        });
        self.log.reserve((4 * self.log.len()).max(1024));
    }

    /// The block that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<Box<Record>> {
        loop {
            let Arrival { class, arrived } = self.log.pop_front()?;
            let blocks = &mut self.classes[class];
            if blocks.front().is_some_and(|oldest| oldest.arrived == arrived) {
                self.held -= 1;
                return blocks.pop_front().map(|cached| cached.record);
            }
        }
    }

    /// Takes the block that has waited longest, to make room, and reconsiders the bound.
    pub(super) fn evict(&mut self) -> Option<Box<Record>> {
        let evicted = self.take_oldest()?;
        self.evictions += 1;
        // TensorFlow's rule: if more than 0.2 % of the puts are evictions and more than 0.2 % of the requests
        // find nothing, the bound is a tenth too small (at least 100 in all). Every put was a request once.
        let too_small = self.evictions * 500 > self.puts && self.misses * 500 > self.puts;
        if self.grows && self.evictions.is_multiple_of(CHECK_EVERY) && too_small {
            self.bound = (self.bound + self.bound / 10).max(100);
        }
        Some(evicted)
    }

    /// Bytes of the cache's own records.
    pub(super) fn metadata(&self) -> usize {
        let classes: usize = self.classes.iter().map(VecDeque::capacity).sum();
        classes * size_of::<Cached>()
            + self.log.capacity() * size_of::<Arrival>()
            + self.classes.capacity() * size_of::<VecDeque<Cached>>()
            + self.by_size.capacity() * size_of::<(usize, usize)>()
            + size_of::<[(usize, usize); RECENT]>()
    }
}
