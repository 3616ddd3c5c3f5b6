//! Cached blocks by exact size, with the order in which they were returned.
//!
//! The blocks of a size form a stack: the newest is used first. Eviction takes the oldest of all blocks,
//! which is at the bottom of its stack. A heap over the bottoms finds that stack, and is updated lazily: a
//! size enters the heap once, with the age of its bottom at that time, and is checked again when it reaches
//! the top. Bottoms only get younger, so an entry is never younger than its bottom. Put and take of one size,
//! the common path, do not touch the heap.

use crate::Record;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for sizes: a program has few, and most are multiples of powers of two, so one multiplication
/// spreads them.
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
        // The table uses the high and the low bits.
        let product = spread(self.0 ^ value as u64);
        self.0 = product ^ (product >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Multiplies by 2^64 divided by the golden ratio: the high bits of the product are well mixed.
#[inline]
fn spread(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the index of a size in the table of recent sizes.
#[inline(always)]
fn recent_index(size: usize) -> usize {
    usize::from(spread(size as u64).to_be_bytes()[0])
}

/// The bits of a token that hold the block's size. The bits above hold the index of the size's class in the
/// slot that the block was taken from.
pub(super) const SIZE: usize = (1 << 48) - 1;

/// Returns the token of a block of this size with this class index.
#[inline(always)]
pub(super) fn token(class: usize, size: usize) -> usize {
    (class << 48) | size
}

/// A cached block: its arrival number and its record.
#[derive(Debug)]
struct Cached {
    arrived: u64,
    record: Box<Record>,
}

/// The blocks of one size, oldest first.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Class {
    size: usize,
    blocks: Vec<Option<Cached>>,
    /// The first `evicted` entries of `blocks` were evicted and are `None`. The others are not.
    evicted: usize,
    /// True if the size is in the heap. A size without blocks stays there until it reaches the top.
    in_heap: bool,
}

impl Class {
    fn oldest(&self) -> Option<u64> {
        self.blocks.get(self.evicted)?.as_ref().map(|oldest| oldest.arrived)
    }

    fn take_oldest(&mut self) -> Option<Cached> {
        let oldest = self.blocks.get_mut(self.evicted)?.take();
        self.evicted += 1;
        if 2 * self.evicted >= self.blocks.len() {
            // Moves at most as many entries as were evicted since the last time.
            self.blocks.drain(..self.evicted);
            self.evicted = 0;
        }
        oldest
    }

    /// Takes the newest block. Entries below it that were evicted are empty.
    #[inline(always)]
    fn take_newest(&mut self) -> Option<Cached> {
        let newest = self.blocks.pop().flatten();
        if newest.is_none() {
            self.evicted = self.evicted.min(self.blocks.len());
        }
        newest
    }
}

/// Number of entries in the table of recent sizes: the index is one byte.
const RECENT: usize = 256;

/// The cached blocks of one thread.
#[derive(Debug)]
pub(super) struct Lru {
    by_size: HashMap<usize, usize, BuildHasherDefault<SizeHasher>>,
    /// Recently used sizes and their classes, indexed by a few bits of the size's hash. Size 0 is an empty
    /// entry.
    recent: [(usize, usize); RECENT],
    classes: Vec<Class>,
    /// Classes by the age of their bottom, or older. It contains every class that is not empty.
    bottoms: BinaryHeap<Reverse<(u64, usize)>>,
    /// Number of blocks that may still be added.
    capacity: usize,
    puts: u64,
    misses: u64,
    /// Puts and misses that [`Lru::take_counts`] has reported.
    reported: (u64, u64),
}

impl Default for Lru {
    fn default() -> Self {
        Self {
            by_size: HashMap::default(),
            recent: [(0, 0); RECENT],
            classes: Vec::new(),
            bottoms: BinaryHeap::new(),
            capacity: 0,
            puts: 0,
            misses: 0,
            reported: (0, 0),
        }
    }
}

impl Lru {
    /// Returns the class of a size, which is not 0, creating it for a new size.
    #[inline]
    fn class(&mut self, size: usize) -> usize {
        let index = recent_index(size);
        let (known, class) = self.recent[index];
        if known == size { class } else { self.look_up(size, index) }
    }

    #[cold]
    fn look_up(&mut self, size: usize, index: usize) -> usize {
        let next = self.classes.len();
        let class = *self.by_size.entry(size).or_insert(next);
        if class == next {
            self.classes.push(Class { size, ..Class::default() });
        }
        self.recent[index] = (size, class);
        class
    }

    /// Takes the newest block of exactly this size.
    pub(super) fn take(&mut self, size: usize) -> Option<Box<Record>> {
        let class = self.class(size);
        self.take_newest(class)
    }

    /// Returns the class of a size if the size is in the table of recent sizes.
    #[inline(always)]
    pub(super) fn known_class(&self, size: usize) -> Option<usize> {
        let (known, class) = self.recent[recent_index(size)];
        (known == size).then_some(class)
    }

    /// Returns the newest block of a class without taking it.
    #[inline(always)]
    pub(super) fn newest(&self, class: usize) -> Option<&Record> {
        self.classes.get(class)?.blocks.last()?.as_ref().map(|cached| &*cached.record)
    }

    /// Takes the newest block of a class.
    #[inline(always)]
    pub(super) fn take_newest(&mut self, class: usize) -> Option<Box<Record>> {
        let Cached { mut record, .. } = self.classes.get_mut(class)?.take_newest()?;
        self.capacity += 1;
        record.token = token(class, record.token & SIZE);
        Some(record)
    }

    /// Counts a request that found no block.
    pub(super) fn missed(&mut self) {
        self.misses += 1;
    }

    /// Adds a block. Returns it as `Err` if the capacity is used up.
    pub(super) fn put(&mut self, record: Box<Record>) -> Result<(), Box<Record>> {
        if self.capacity == 0 {
            return Err(record);
        }
        if self.can_put_fast(&record) {
            self.put_fast(record);
        } else {
            self.put_slow(record, self.puts);
            self.capacity -= 1;
            self.puts += 1;
        }
        Ok(())
    }

    /// Returns `true` if [`Lru::put_fast`] may be called. Class indexes differ between slots: the token's
    /// index is right unless another thread allocated the block.
    #[inline(always)]
    pub(super) fn can_put_fast(&self, record: &Record) -> bool {
        self.capacity > 0
            && self.classes.get(record.token >> 48).is_some_and(|class| {
                class.size == record.token & SIZE
                    && class.in_heap
                    && class.blocks.len() < class.blocks.capacity()
            })
    }

    /// Adds a block for which [`Lru::can_put_fast`] returned `true`. It calls no other function, not even the
    /// allocator's.
    #[inline(always)]
    pub(super) fn put_fast(&mut self, record: Box<Record>) {
        let arrived = self.puts;
        self.classes[record.token >> 48].blocks.push(Some(Cached { arrived, record }));
        self.capacity -= 1;
        self.puts += 1;
    }

    /// Adds a block whose token does not have the class's index, or whose class is full or not in the heap.
    #[cold]
    fn put_slow(&mut self, record: Box<Record>, arrived: u64) {
        let index = self.class(record.token & SIZE);
        let class = &mut self.classes[index];
        class.blocks.push(Some(Cached { arrived, record }));
        if !class.in_heap {
            class.in_heap = true;
            self.bottoms.push(Reverse((arrived, index)));
        }
    }

    /// Returns the number of cached blocks.
    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(|class| class.blocks.len() - class.evicted).sum()
    }

    pub(super) fn add_capacity(&mut self, capacity: usize) {
        self.capacity += capacity;
    }

    /// Reduces the capacity by one. There is unused capacity, because a block was just taken.
    pub(super) fn reduce_capacity(&mut self) {
        self.capacity = self.capacity.saturating_sub(1);
    }

    /// Returns the puts and misses since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        let counts = (self.puts - self.reported.0, self.misses - self.reported.1);
        self.reported = (self.puts, self.misses);
        counts
    }

    /// Takes the oldest block, which frees its capacity.
    pub(super) fn take_oldest(&mut self) -> Option<Box<Record>> {
        loop {
            let Reverse((age, index)) = self.bottoms.pop()?;
            let class = &mut self.classes[index];
            let Some(bottom) = class.oldest() else {
                class.in_heap = false;
                continue;
            };
            if bottom == age {
                self.capacity += 1;
                let oldest = class.take_oldest().map(|cached| cached.record);
                class.in_heap = false;
                if let Some(next) = class.oldest() {
                    class.in_heap = true;
                    self.bottoms.push(Reverse((next, index)));
                }
                return oldest;
            }
            self.bottoms.push(Reverse((bottom, index)));
        }
    }

    /// Forgets all sizes if no block is cached, and frees the metadata of them.
    pub(super) fn forget_sizes(&mut self) {
        if self.len() == 0 {
            (self.by_size, self.classes, self.bottoms) = Default::default();
            self.recent = [(0, 0); RECENT];
        }
    }

    /// Returns the bytes of the cache's own metadata.
    pub(super) fn metadata(&self) -> usize {
        let blocks: usize = self.classes.iter().map(|class| class.blocks.capacity()).sum();
        blocks * size_of::<Cached>()
            + self.bottoms.capacity() * size_of::<(u64, usize)>()
            + self.classes.capacity() * size_of::<Class>()
            + self.by_size.capacity() * size_of::<(usize, usize)>()
            + size_of::<[(usize, usize); RECENT]>()
    }
}
