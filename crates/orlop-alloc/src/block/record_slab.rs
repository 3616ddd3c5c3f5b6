//! Records of an engine's blocks, dense in memory.
//!
//! A record must not move while its block is live, so records are in segments that stay where they are. That
//! is denser than a box each: memory with the alignment of records has gaps between the allocations of many
//! system allocators.
//!
//! # What is beside the records
//!
//! The free of a block among many waits for memory twice: for the block's record, and then for the entry of
//! the engine's own table that the record names. So the numbers of these entries are in an array at the
//! beginning of the segment, too. It has four bytes for each record, so it stays in the processor's cache,
//! and it is found from the address of a record alone. An engine reads it to prefetch its entry while the
//! record is still on its way.
//!
//! The array and the address of the table are hints: they are read without a lock, and only to prefetch. The
//! record's token is what counts.

use super::{RawBlock, Record};
use crate::Access;
use orlop_core::Device;
use orlop_sync::Linked as _;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The size of a segment, and its alignment.
const SEGMENT: usize = 1 << 16;

/// The distance between two records of a segment.
const SLOT: usize = size_of::<Record>().next_power_of_two();

/// Records of every other segment begin this many bytes later in their slots. An allocation uses the first
/// cache line of a record only. If all of them began at multiples of 128 bytes, half of a cache's sets would
/// have none.
const SHIFT: usize = align_of::<Record>() % SLOT;

/// The slots of a segment, with those that the array takes: it has an entry for each.
const SLOTS: usize = SEGMENT / SLOT;

/// The first slot with a record. The address of the engine's table takes the place of the first entries.
const FIRST: usize = (SLOTS * size_of::<AtomicU32>()).div_ceil(SLOT) + 1;

/// The end of the slots with records. The last slot is left empty: a shifted record reaches into the next
/// one.
const END: usize = SLOTS - 1;

const _: () = assert!(FIRST * size_of::<AtomicU32>() >= size_of::<AtomicPtr<()>>() && FIRST < END);
const _: () = assert!(SHIFT < SLOT && SHIFT.is_multiple_of(align_of::<Record>()));

const LAYOUT: Layout = match Layout::from_size_align(SEGMENT, SEGMENT) {
    Ok(layout) => layout,
    Err(_) => panic!("the size is a power of two"),
};

/// The records of an engine's blocks. The record that was returned last is taken first: it is in the
/// processor's cache.
#[derive(Debug)]
pub struct RecordSlab {
    device: Device,
    access: Access,
    /// The records without a block, linked.
    unused: Option<NonNull<Record>>,
    /// Invariant: each came from the global allocator with `LAYOUT`.
    segments: Vec<NonNull<u8>>,
    /// The first slot of the last segment that had no record yet.
    fresh: usize,
}

impl RecordSlab {
    /// Creates a slab without memory, for blocks on a device.
    #[must_use]
    pub fn new(device: Device, access: Access) -> Self {
        Self { device, access, unused: None, segments: Vec::new(), fresh: END }
    }

    /// Takes a record, as a block whose address and size are those of the block that had it last, or none.
    /// `table` and `entry` are the hints for [`RecordSlab::hints`].
    #[inline(always)]
    pub fn take<T>(&mut self, table: *const T, entry: u32) -> RawBlock {
        let record = match self.unused {
            Some(record) => {
                // SAFETY: a record in the list is initialised, and only the list refers to it.
                self.unused = unsafe { record.as_ref() }.link();
                record
            }
            None => self.take_fresh(),
        };
        // SAFETY: the record is one of a segment.
        let (of_table, of_entry) = unsafe { hints(record) };
        of_table.store(table.cast_mut().cast(), Ordering::Relaxed);
        of_entry.store(entry, Ordering::Relaxed);
        // SAFETY: the record is valid until it is given back, and it is in the list no more.
        unsafe { RawBlock::from_record(record) }
    }

    /// Takes back the record of a block.
    ///
    /// # Safety
    ///
    /// `block` came from [`RecordSlab::take`] of this slab.
    #[inline(always)]
    pub unsafe fn give(&mut self, block: RawBlock) {
        let mut record = block.record();
        // SAFETY: valid until it is given back; `block` was its only holder.
        unsafe { record.as_mut() }.set_link(self.unused);
        self.unused = Some(record);
    }

    /// Returns the table and the entry that [`RecordSlab::take`] got for a block, without access to its
    /// record. The table may have moved since.
    ///
    /// # Safety
    ///
    /// `block` came from [`RecordSlab::take`], and has not been given back.
    #[inline(always)]
    #[must_use]
    pub unsafe fn hints<T>(block: &RawBlock) -> (*const T, u32) {
        // SAFETY: its record is one of a segment (guaranteed by the caller).
        let (table, entry) = unsafe { hints(block.record()) };
        (table.load(Ordering::Relaxed).cast(), entry.load(Ordering::Relaxed))
    }

    /// Releases all memory if no record is taken. The time is proportional to the number of the others.
    pub fn clear(&mut self) {
        let made = self.segments.len() * (END - FIRST) - (END - self.fresh);
        if self.unused().count() < made {
            return;
        }
        for record in self.unused() {
            // SAFETY: it was read for its link, and is dropped once: the list is given up.
            unsafe { record.drop_in_place() };
        }
        self.unused = None;
        for segment in std::mem::take(&mut self.segments) {
            // SAFETY: by the invariant; all of its records are unused, so nothing refers to them.
            unsafe { dealloc(segment.as_ptr(), LAYOUT) };
        }
        self.fresh = END;
    }

    /// Returns the unused records. Each is read for its link before it is returned.
    fn unused(&self) -> impl Iterator<Item = NonNull<Record>> + use<> {
        let mut next = self.unused;
        std::iter::from_fn(move || {
            let record = next?;
            // SAFETY: a record in the list is initialised, and only the list refers to it.
            next = unsafe { record.as_ref() }.link();
            Some(record)
        })
    }

    /// Returns the bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT + self.segments.capacity() * size_of::<NonNull<u8>>()
    }

    #[cold]
    #[inline(never)]
    fn take_fresh(&mut self) -> NonNull<Record> {
        if self.fresh == END {
            // SAFETY: the size is not zero.
            let Some(segment) = NonNull::new(unsafe { alloc_zeroed(LAYOUT) }) else {
                handle_alloc_error(LAYOUT)
            };
            self.segments.push(segment);
            self.fresh = FIRST;
        }
        let last = self.segments.len() - 1;
        let shift = last % 2 * SHIFT;
        // SAFETY: `fresh` is below `END`, so this slot and the next one are inside the segment.
        let record = unsafe { self.segments[last].add(self.fresh * SLOT + shift) }.cast::<Record>();
        self.fresh += 1;
        // SAFETY: the place is aligned and in no use yet.
        unsafe { record.write(Record::new(NonNull::dangling(), 0, self.device, self.access)) };
        record
    }
}

/// Returns the hints of a record: the address of the table, and the entry.
///
/// # Safety
///
/// The record is one of a segment, which is not released while the result is used.
#[inline(always)]
unsafe fn hints<'a>(record: NonNull<Record>) -> (&'a AtomicPtr<()>, &'a AtomicU32) {
    let address = record.as_ptr().cast::<u8>();
    let slot = address.addr() % SEGMENT / SLOT;
    let segment = address.map_addr(|address| address & !(SEGMENT - 1));
    // SAFETY: segments are aligned to their size and begin with the table's address, which is null at first.
    let table = unsafe { &*segment.cast::<AtomicPtr<()>>() };
    // SAFETY: the array begins with the segment and has an entry for each slot, zero at first.
    let entry = unsafe { segment.cast::<AtomicU32>().add(slot) };
    // SAFETY: as above.
    let entry = unsafe { &*entry };
    (table, entry)
}

impl Drop for RecordSlab {
    /// Releases all memory. It is leaked if a record is still taken.
    fn drop(&mut self) {
        self.clear();
    }
}

// SAFETY: the records are the slab's own, and they can be sent.
unsafe impl Send for RecordSlab {}
// SAFETY: a shared slab gives access to no record.
unsafe impl Sync for RecordSlab {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Request;
    use std::collections::BTreeSet;

    #[test]
    fn records_are_dense_and_the_last_is_taken_first() {
        let mut slab = RecordSlab::new(Device::CPU, Access::None);
        let table = [0_u64; 4];
        let count = 2 * SLOTS;
        let mut blocks: Vec<RawBlock> =
            (0..count).map(|number| slab.take(table.as_ptr(), u32::try_from(number).unwrap())).collect();
        let places: BTreeSet<usize> = blocks.iter().map(|block| block.record().as_ptr().addr()).collect();
        assert_eq!(places.len(), count, "no record is taken twice");
        assert_eq!(slab.bytes() / SEGMENT, count.div_ceil(END - FIRST));
        for (number, block) in blocks.iter_mut().enumerate() {
            // SAFETY: the test's own block.
            unsafe { block.record_mut() }.assign(&Request::new(number + 1));
        }
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!(block.requested, number + 1, "nothing else was written to it");
            // SAFETY: it came from this slab.
            let (found, entry) = unsafe { RecordSlab::hints::<u64>(block) };
            assert_eq!((found, entry as usize), (table.as_ptr(), number));
        }
        let last = blocks.pop().unwrap();
        let place = last.record();
        // SAFETY: it came from this slab.
        unsafe { slab.give(last) };
        let again = slab.take(table.as_ptr(), 7);
        assert_eq!((again.record(), again.requested), (place, count));
        // SAFETY: they came from this slab.
        blocks.into_iter().chain([again]).for_each(|block| unsafe { slab.give(block) });
        let bytes = slab.bytes();
        let mut blocks: Vec<RawBlock> = (0..count).map(|_| slab.take(table.as_ptr(), 0)).collect();
        assert_eq!(slab.bytes(), bytes, "all of them are used again");
        let kept = blocks.pop().unwrap();
        // SAFETY: they came from this slab.
        blocks.into_iter().for_each(|block| unsafe { slab.give(block) });
        slab.clear();
        assert_eq!((slab.bytes(), kept.device), (bytes, Device::CPU), "a record is taken");
        // SAFETY: it came from this slab.
        unsafe { slab.give(kept) };
        slab.clear();
        assert_eq!(slab.bytes(), 0);
        let first = slab.take(table.as_ptr(), 0);
        assert!(slab.bytes() > SEGMENT && first.uses.is_empty());
        // SAFETY: it came from this slab.
        unsafe { slab.give(first) };
    }

    /// Safe code may drop an engine before a block of it.
    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn a_record_that_is_taken_outlives_the_slab() {
        let mut slab = RecordSlab::new(Device::CPU, Access::None);
        let mut block = slab.take(std::ptr::null::<u64>(), 0);
        // SAFETY: the test's own block.
        unsafe { block.record_mut() }.assign(&Request::new(5));
        drop(slab);
        assert_eq!(block.requested, 5);
    }
}
