//! Cached blocks by exact size, with the order in which they came.
//!
//! A size's blocks are a stack: the newest is used first. Eviction takes the oldest of all, which is at the
//! bottom of its stack. Which stack that is, a heap of bottoms tells, lazily: a size enters it once, with the
//! age that its bottom has then, and is looked at again when it comes to the top. Bottoms only get younger, so
//! the top is never too young; put and take of one size, the common path, do not touch the heap.

use crate::Record;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
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
        // The table uses both ends.
        let product = spread(self.0 ^ value as u64);
        self.0 = product ^ (product >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// 2^64 divided by the golden ratio: the high bits of the product are well mixed.
#[inline]
fn spread(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a size is looked for among the recent ones.
#[inline(always)]
fn place_of(size: usize) -> usize {
    usize::from(spread(size as u64).to_be_bytes()[0])
}

/// A token holds a block's size, and above it the class that the size had in the slot the block was taken from.
pub(super) const SIZE: usize = (1 << 48) - 1;

/// The token of a block of this size, whose class is probably this.
#[inline(always)]
pub(super) fn token(class: usize, size: usize) -> usize {
    (class << 48) | size
}

/// A cached block: when it came, and its record.
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
    /// So many of `blocks` were evicted, and are `None`. The others are not.
    evicted: usize,
    /// Whether the size is in the heap. Emptied, it stays there until it comes to the top.
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
            // As many moves as evictions since the last time, at most.
            self.blocks.drain(..self.evicted);
            self.evicted = 0;
        }
        oldest
    }

    /// The newest. Evicted places below it are found empty.
    #[inline(always)]
    fn take_newest(&mut self) -> Option<Cached> {
        let newest = self.blocks.pop().flatten();
        if newest.is_none() {
            self.evicted = self.evicted.min(self.blocks.len());
        }
        newest
    }
}

/// How many sizes are found without the map: as many as a byte has values.
const RECENT: usize = 256;

/// What one thread keeps.
#[derive(Debug)]
pub(super) struct Lru {
    by_size: HashMap<usize, usize, BuildHasherDefault<SizeHasher>>,
    /// Sizes looked up lately and their classes, by a few bits of their hash. Size 0 is not used.
    recent: [(usize, usize); RECENT],
    classes: Vec<Class>,
    /// Classes by the age of their bottom, or more. Each that is not empty is in it.
    bottoms: BinaryHeap<Reverse<(u64, usize)>>,
    /// How many blocks more may be kept.
    places: usize,
    puts: u64,
    misses: u64,
    /// Puts and misses that [`Lru::news`] has told.
    told: (u64, u64),
}

impl Default for Lru {
    fn default() -> Self {
        Self {
            by_size: HashMap::default(),
            recent: [(0, 0); RECENT],
            classes: Vec::new(),
            bottoms: BinaryHeap::new(),
            places: 0,
            puts: 0,
            misses: 0,
            told: (0, 0),
        }
    }
}

impl Lru {
    /// The class of a size, which is not 0; a new one if it was never seen.
    #[inline]
    fn class(&mut self, size: usize) -> usize {
        let place = place_of(size);
        let (known, class) = self.recent[place];
        if known == size { class } else { self.look_up(size, place) }
    }

    #[cold]
    fn look_up(&mut self, size: usize, place: usize) -> usize {
        let next = self.classes.len();
        let class = *self.by_size.entry(size).or_insert(next);
        if class == next {
            self.classes.push(Class { size, ..Class::default() });
        }
        self.recent[place] = (size, class);
        class
    }

    /// The newest block of exactly this size.
    pub(super) fn take(&mut self, size: usize) -> Option<Box<Record>> {
        let class = self.class(size);
        self.take_newest(class)
    }

    /// The class of a size, if it was looked up lately.
    #[inline(always)]
    pub(super) fn known_class(&self, size: usize) -> Option<usize> {
        let (known, class) = self.recent[place_of(size)];
        (known == size).then_some(class)
    }

    /// The newest block of a class, to look at.
    #[inline(always)]
    pub(super) fn newest(&self, class: usize) -> Option<&Record> {
        self.classes.get(class)?.blocks.last()?.as_ref().map(|cached| &*cached.record)
    }

    /// The newest block of a class.
    #[inline(always)]
    pub(super) fn take_newest(&mut self, class: usize) -> Option<Box<Record>> {
        let Cached { mut record, .. } = self.classes.get_mut(class)?.take_newest()?;
        self.places += 1;
        record.token = token(class, record.token & SIZE);
        Some(record)
    }

    /// Notes that a request found nothing.
    pub(super) fn missed(&mut self) {
        self.misses += 1;
    }

    /// Keeps a block; `Err` if there is no place for it.
    pub(super) fn put(&mut self, record: Box<Record>) -> Result<(), Box<Record>> {
        if self.places == 0 {
            return Err(record);
        }
        if self.has_place(&record) {
            self.put_quickly(record);
        } else {
            self.put_anew(record, self.puts);
            self.places -= 1;
            self.puts += 1;
        }
        Ok(())
    }

    /// Whether [`Lru::put_quickly`] will do. Classes are numbered by slot: the token is right about it
    /// unless another thread allocated the block.
    #[inline(always)]
    pub(super) fn has_place(&self, record: &Record) -> bool {
        self.places > 0
            && self.classes.get(record.token >> 48).is_some_and(|class| {
                class.size == record.token & SIZE
                    && class.in_heap
                    && class.blocks.len() < class.blocks.capacity()
            })
    }

    /// Keeps a block that [`Lru::has_place`] is true of. Calls nothing.
    #[inline(always)]
    pub(super) fn put_quickly(&mut self, record: Box<Record>) {
        let arrived = self.puts;
        self.classes[record.token >> 48].blocks.push(Some(Cached { arrived, record }));
        self.places -= 1;
        self.puts += 1;
    }

    /// Keeps a block of a size that is not where its token says, or not in the heap.
    #[cold]
    fn put_anew(&mut self, record: Box<Record>, arrived: u64) {
        let index = self.class(record.token & SIZE);
        let class = &mut self.classes[index];
        class.blocks.push(Some(Cached { arrived, record }));
        if !class.in_heap {
            class.in_heap = true;
            self.bottoms.push(Reverse((arrived, index)));
        }
    }

    /// How many blocks are kept.
    pub(super) fn held(&self) -> usize {
        self.classes.iter().map(|class| class.blocks.len() - class.evicted).sum()
    }

    pub(super) fn add_places(&mut self, places: usize) {
        self.places += places;
    }

    /// One block less may be kept. A place was just made free.
    pub(super) fn give_up_place(&mut self) {
        self.places = self.places.saturating_sub(1);
    }

    /// Puts and misses since the last call.
    pub(super) fn news(&mut self) -> (u64, u64) {
        let news = (self.puts - self.told.0, self.misses - self.told.1);
        self.told = (self.puts, self.misses);
        news
    }

    /// Takes the block that has waited longest; its place is free.
    pub(super) fn take_oldest(&mut self) -> Option<Box<Record>> {
        loop {
            let Reverse((age, index)) = self.bottoms.pop()?;
            let class = &mut self.classes[index];
            let Some(bottom) = class.oldest() else {
                class.in_heap = false;
                continue;
            };
            if bottom == age {
                self.places += 1;
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

    /// Bytes of the cache's own records.
    pub(super) fn metadata(&self) -> usize {
        let blocks: usize = self.classes.iter().map(|class| class.blocks.capacity()).sum();
        blocks * size_of::<Cached>()
            + self.bottoms.capacity() * size_of::<(u64, usize)>()
            + self.classes.capacity() * size_of::<Class>()
            + self.by_size.capacity() * size_of::<(usize, usize)>()
            + size_of::<[(usize, usize); RECENT]>()
    }
}
