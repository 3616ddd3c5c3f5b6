//! Used records, for the next block: in a list for each thread.
//!
//! A record must not move while its block lives, so each is in a box; a list of used boxes saves going to
//! the system's allocator each time. For memory aligned as records are, that takes longer than all else together.

use crate::{RawBlock, Record, Request};
use orlop_sync::{Linked as _, Slots, thread_slot};
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;

/// How many unused records a thread keeps.
const KEEP: usize = 256;

/// Unused records.
pub(crate) struct Records {
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    unused: Slots<Vec<Box<Record>>>,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self { unused: Slots::new() }
    }

    /// A block of so many bytes for a request, with the engine's note. Only a record that is new is made by `new`: of all
    /// others of the engine the device and the access are right.
    #[inline]
    pub(crate) fn block(
        &self,
        (ptr, granted, token): (NonNull<u8>, usize, usize),
        request: &Request,
        new: impl FnOnce() -> Record,
    ) -> RawBlock {
        let unused = self.unused.with(thread_slot::current(), Vec::pop);
        let mut record = unused.unwrap_or_else(|| Box::new(new()));
        (record.ptr, record.granted, record.token) = (ptr, granted, token);
        record.assign(request);
        RawBlock::new(record)
    }

    /// Keeps the record of a returned block for another one.
    #[inline]
    pub(crate) fn keep(&self, record: Box<Record>) {
        self.unused.with(thread_slot::current(), |unused| {
            if unused.len() < KEEP {
                unused.push(record);
            }
        });
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

/// How many records that no block uses a thread keeps for memory from outside.
const SPARE: usize = 64;

/// AddressSanitizer and loom find uses of freed memory only if it is freed. Miri interprets the recycling itself.
const KEEPS: bool = !cfg!(any(loom, orlop_asan));

/// A thread's records that no block uses, linked.
struct Spare {
    first: Cell<Option<NonNull<Record>>>,
    count: Cell<usize>,
}

thread_local! {
    static OUTSIDE: Spare = const { Spare { first: Cell::new(None), count: Cell::new(0) } };
}

impl Spare {
    #[inline]
    fn pop(&self) -> Option<Box<Record>> {
        // SAFETY: `push` put it there, and took it from a box: taken back once.
        let record = unsafe { Box::from_raw(self.first.get()?.as_ptr()) };
        self.first.set(record.link());
        self.count.set(self.count.get() - 1);
        Some(record)
    }

    /// Gives the record back if there are enough.
    #[inline]
    fn push(&self, mut record: Box<Record>) -> Option<Box<Record>> {
        if self.count.get() == SPARE {
            return Some(record);
        }
        record.set_link(self.first.get());
        self.first.set(Some(NonNull::from(Box::leak(record))));
        self.count.set(self.count.get() + 1);
        None
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        while let Some(record) = self.pop() {
            drop(record);
        }
    }
}

/// A record on the heap, for memory from outside.
#[inline]
pub(crate) fn box_record(record: Record) -> Box<Record> {
    let spare = if KEEPS { OUTSIDE.try_with(Spare::pop).ok().flatten() } else { None };
    match spare {
        Some(mut boxed) => {
            *boxed = record;
            boxed
        }
        None => Box::new(record),
    }
}

/// Keeps a record for [`box_record`]: of a block from outside that is gone, and without its deleter.
#[inline]
pub(crate) fn recycle_record(record: Box<Record>) {
    debug_assert!(record.deleter.is_none());
    if KEEPS {
        // If the thread is ending, the closure drops it uncalled.
        drop(OUTSIDE.try_with(|spare| spare.push(record)));
    }
}

#[cfg(all(test, not(any(loom, orlop_asan))))]
mod tests {
    use super::{Record, SPARE, box_record, recycle_record};
    use crate::Access;
    use orlop_core::Device;
    use std::ptr::NonNull;

    fn fresh(granted: usize) -> Record {
        Record::new(NonNull::dangling(), granted, Device::CPU, Access::Host)
    }

    #[test]
    fn a_record_is_used_again_and_no_more_are_kept_than_a_few() {
        let all: Vec<_> = (0..2 * SPARE).map(|_| box_record(fresh(1))).collect();
        let kept: Vec<_> = all[..SPARE].iter().map(|record| &raw const **record).collect();
        all.into_iter().for_each(recycle_record);
        let again: Vec<_> = (0..SPARE).map(|_| box_record(fresh(2))).collect();
        assert!(again.iter().all(|record| kept.contains(&&raw const **record) && record.granted == 2));
        assert!(again.iter().all(|record| record.owner.is_none()));
    }
}
