//! The rings of all threads.

use super::record::{EventRecord, WORDS};
use super::ring::Ring;
use super::thread::RecordingGuard;
use orlop_sync::thread_slot::{self, OWNED, SLOTS};
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A ring for each slot, created when a thread in that slot records its first event.
pub(super) struct Rings {
    capacity: usize,
    places: Box<[RingSlot]>,
}

#[derive(Default)]
struct RingSlot {
    ring: OnceLock<Ring<WORDS>>,
    /// For slots that several threads share.
    writing: Mutex<()>,
}

impl Rings {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, places: (0..SLOTS).map(|_| RingSlot::default()).collect() }
    }

    /// Appends a record to the current thread's ring.
    #[inline]
    pub(super) fn push(&self, record: &EventRecord) {
        let slot = thread_slot::index();
        let Some(place) = self.places.get(slot) else { return };
        if slot < OWNED
            && let Some(ring) = place.ring.get()
        {
            ring.push(record.words());
        } else {
            // The words are passed and not the record, which would be stored for a reference to it: field by
            // field, and then read by words.
            self.push_slowly(slot, place, record.words());
        }
    }

    #[cold]
    fn push_slowly(&self, slot: usize, place: &RingSlot, words: [u64; WORDS]) {
        let ring = place.ring.get_or_init(|| {
            // The memory may come from an observed allocator.
            let _busy = RecordingGuard::begin();
            Ring::new(self.capacity)
        });
        let shared = slot >= OWNED;
        let _writing = shared.then(|| place.writing.lock().unwrap_or_else(PoisonError::into_inner));
        ring.push(words);
    }

    /// Appends the records since the positions in `from`, which are advanced. Returns the number of records
    /// that were overwritten. An empty `from` reads everything.
    pub(super) fn read(&self, from: &mut Vec<u64>, records: &mut Vec<EventRecord>) -> u64 {
        from.resize(self.places.len(), 0);
        let mut lost = 0;
        for (place, from) in self.places.iter().zip(from) {
            let Some(ring) = place.ring.get() else { continue };
            let seen = ring.read(*from, |words| records.extend(EventRecord::of_words(words)));
            (*from, lost) = (seen.until, lost + seen.lost);
        }
        lost
    }

    /// Returns the number of records after the positions in `from` that were overwritten.
    pub(super) fn overwritten(&self, from: &[u64]) -> u64 {
        let from = from.iter().copied().chain(std::iter::repeat(0));
        let rings = self.places.iter().zip(from).filter_map(|(place, from)| Some((place.ring.get()?, from)));
        rings.map(|(ring, from)| ring.written().saturating_sub(ring.capacity()).saturating_sub(from)).sum()
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.places.iter().filter(|place| place.ring.get().is_some()).count();
        f.debug_struct("Rings").field("capacity", &self.capacity).field("made", &made).finish()
    }
}
