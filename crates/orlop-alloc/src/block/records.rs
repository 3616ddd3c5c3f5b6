//! Recycling of records of foreign memory, in a list per thread.
//!
//! A record must not move while its block is live, so each is in a box. A list of unused boxes avoids a call
//! of the system's allocator per block: for memory with the alignment of records, such a call takes longer
//! than all other steps together.

use crate::Record;
use orlop_sync::Linked as _;
use std::cell::Cell;
use std::ptr::NonNull;

/// The maximum number of unused records that a thread keeps for foreign memory.
const MAX_SPARE: usize = 64;

/// Off under AddressSanitizer and loom, which detect a use after free only if the memory is freed. Miri runs
/// the recycling itself.
const IS_RECYCLING: bool = !cfg!(any(loom, orlop_asan));

/// A thread's unused records, as a linked list.
struct SpareRecords {
    first: Cell<Option<NonNull<Record>>>,
    count: Cell<usize>,
}

thread_local! {
    static SPARE: SpareRecords = const { SpareRecords { first: Cell::new(None), count: Cell::new(0) } };
}

impl SpareRecords {
    #[inline]
    fn pop(&self) -> Option<Box<Record>> {
        // SAFETY: `push` made the pointer from a box, which is taken back once.
        let record = unsafe { Box::from_raw(self.first.get()?.as_ptr()) };
        self.first.set(record.link());
        self.count.set(self.count.get() - 1);
        Some(record)
    }

    /// Adds a record. Returns it if the list is full.
    #[inline]
    fn push(&self, mut record: Box<Record>) -> Option<Box<Record>> {
        if self.count.get() == MAX_SPARE {
            return Some(record);
        }
        record.set_link(self.first.get());
        self.first.set(Some(NonNull::from(Box::leak(record))));
        self.count.set(self.count.get() + 1);
        None
    }
}

impl Drop for SpareRecords {
    fn drop(&mut self) {
        while let Some(record) = self.pop() {
            drop(record);
        }
    }
}

/// Moves a record of foreign memory into a box.
#[inline]
pub(crate) fn box_record(record: Record) -> Box<Record> {
    let spare = if IS_RECYCLING { SPARE.try_with(SpareRecords::pop).ok().flatten() } else { None };
    match spare {
        Some(mut boxed) => {
            *boxed = record;
            boxed
        }
        None => Box::new(record),
    }
}

/// Keeps the record of a dropped foreign block for [`box_record`]. Its deleter has been taken out.
#[inline]
pub(crate) fn recycle_record(record: Box<Record>) {
    debug_assert!(record.deleter.is_none());
    if IS_RECYCLING {
        // If the thread is ending, the closure is dropped without being called, and the record with it.
        drop(SPARE.try_with(|spare| spare.push(record)));
    }
}

#[cfg(all(test, not(any(loom, orlop_asan))))]
mod tests {
    use super::{MAX_SPARE, Record, box_record, recycle_record};
    use crate::Access;
    use orlop_core::Device;
    use std::ptr::NonNull;

    fn fresh(granted: usize) -> Record {
        Record::new(NonNull::dangling(), granted, Device::CPU, Access::Host)
    }

    #[test]
    fn records_are_reused_and_only_a_few_are_kept() {
        let all: Vec<_> = (0..2 * MAX_SPARE).map(|_| box_record(fresh(1))).collect();
        let kept: Vec<_> = all[..MAX_SPARE].iter().map(|record| &raw const **record).collect();
        all.into_iter().for_each(recycle_record);
        let again: Vec<_> = (0..MAX_SPARE).map(|_| box_record(fresh(2))).collect();
        assert!(again.iter().all(|record| kept.contains(&&raw const **record) && record.granted == 2));
        assert!(again.iter().all(|record| record.owner.is_none()));
    }
}
