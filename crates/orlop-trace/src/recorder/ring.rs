//! A ring of records with one writer and concurrent readers. The oldest records are overwritten.
//!
//! The writer never waits and never checks for readers. A reader may read a record that is being overwritten,
//! and must detect that: *begun* counts the records whose writing began, *done* those that are complete. A
//! reader reads the records before *done*, then loads *begun*, and drops the records whose slot may have been
//! reused by then (a sequence lock with as many versions as there are slots).
//!
//! # Ordering
//!
//! *Done* is stored with release after a record's words and loaded with acquire before they are read: the
//! records it counts are written (`ring.done`, `ring.read_done`). Words are stored with release and loaded
//! with acquire: a reader of any word of a record sees that its writing began, and drops the record that was
//! there before (`ring.word`, `ring.read_word`). All four are plain moves on x86.

use crossbeam_utils::CachePadded;
use orlop_sync::{
    atomic::{AtomicU64, Ordering},
    ordering,
};

/// Records of `W` words.
#[derive(Debug)]
pub struct Ring<const W: usize> {
    counts: CachePadded<RingCounters>,
    /// A power of two.
    places: Box<[[AtomicU64; W]]>,
}

#[derive(Debug, Default)]
struct RingCounters {
    begun: AtomicU64,
    done: AtomicU64,
}

/// The result of [`Ring::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRead {
    /// The number of records written so far: where to continue.
    pub until: u64,
    /// The number of the requested records that were overwritten.
    pub lost: u64,
}

impl<const W: usize> Ring<W> {
    /// Creates a ring for `capacity` records, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1).checked_next_power_of_two().unwrap_or(1);
        let place = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Self { counts: CachePadded::default(), places: (0..capacity).map(place).collect() }
    }

    /// Writes a record over the oldest. Only one thread at a time may call this; if the thread changes, the
    /// hand-over must order their accesses.
    #[inline]
    pub fn push(&self, record: [u64; W]) {
        let RingCounters { begun, done } = &*self.counts;
        // Relaxed: only the writer changes it. Not *done*, which has the same value: a writer that reads it
        // would hide its readers from the model checker, which remembers one access to each word.
        let number = begun.load(Ordering::Relaxed);
        begun.store(number + 1, Ordering::Relaxed);
        if let Some(place) = self.places.get(self.place(number)) {
            for (word, value) in place.iter().zip(record) {
                word.store(value, ordering!("ring.word", Release));
            }
        }
        done.store(number + 1, ordering!("ring.done", Release));
    }

    /// Passes the records from number `from` on that are still present to `take`, oldest first.
    pub fn read(&self, from: u64, mut take: impl FnMut([u64; W])) -> RingRead {
        let RingCounters { begun, done } = &*self.counts;
        let capacity = self.capacity();
        let until = done.load(ordering!("ring.read_done", Acquire));
        let first = from.max(until.saturating_sub(capacity));
        let mut records = Vec::new();
        for number in first..until {
            if let Some(place) = self.places.get(self.place(number)) {
                let word = |word: &AtomicU64| word.load(ordering!("ring.read_word", Acquire));
                records.push(std::array::from_fn(|at| place.get(at).map_or(0, word)));
            }
        }
        // Relaxed: ordered after the words, which are loaded with acquire.
        let whole = begun.load(Ordering::Relaxed).saturating_sub(capacity).max(first);
        let dropped = usize::try_from(whole - first).unwrap_or(usize::MAX);
        for record in records.into_iter().skip(dropped) {
            take(record);
        }
        RingRead { until, lost: whole.min(until).saturating_sub(from) }
    }

    /// Returns the number of records that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the number of records written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.counts.done.load(Ordering::Relaxed)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.places.len() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn read(ring: &Ring<2>, from: u64) -> (Vec<u64>, RingRead) {
        let mut records = Vec::new();
        let seen = ring.read(from, |[first, second]| {
            assert_eq!(first, second);
            records.push(first);
        });
        (records, seen)
    }

    #[test]
    fn the_oldest_are_overwritten_and_counted() {
        let ring = Ring::new(3);
        assert_eq!(read(&ring, 0), (vec![], RingRead { until: 0, lost: 0 }));
        for number in 0..4 {
            ring.push([number; 2]);
        }
        assert_eq!(read(&ring, 0), (vec![0, 1, 2, 3], RingRead { until: 4, lost: 0 }));
        assert_eq!(read(&ring, 3), (vec![3], RingRead { until: 4, lost: 0 }));
        for number in 4..10 {
            ring.push([number; 2]);
        }
        assert_eq!(read(&ring, 4), (vec![6, 7, 8, 9], RingRead { until: 10, lost: 2 }));
        assert_eq!(read(&ring, 10), (vec![], RingRead { until: 10, lost: 0 }));
        assert_eq!(ring.written(), 10);
    }

    #[test]
    fn readers_see_whole_records_while_they_are_written() {
        let ring = Ring::new(8);
        let count = if cfg!(miri) { 200 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|number| ring.push([number; 2])));
            let (mut from, mut all) = (0, 0);
            while from < count {
                let (records, seen) = read(&ring, from);
                assert_eq!(seen.until - from, seen.lost + records.len() as u64);
                assert!(records.is_sorted());
                all += records.len();
                from = seen.until;
            }
            assert!(all > 0);
        });
    }
}
