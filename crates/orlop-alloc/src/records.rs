//! Records for engines that make blocks by the thousand: taken from and put back to per-thread lists.
//!
//! A record must not move while its block lives, so each is in a box; a list of used boxes saves going to
//! the system's allocator each time.

use crate::{RawBlock, Record, Request};
use orlop_sync::Slots;
use orlop_sync::thread_slot;
use std::fmt;

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

    /// A block with this record, assigned to the request.
    #[inline]
    pub(crate) fn block(&self, mut record: Record, request: &Request) -> RawBlock {
        record.assign(request);
        let unused = self.unused.with(thread_slot::current(), Vec::pop);
        RawBlock::new(match unused {
            Some(mut boxed) => {
                *boxed = record;
                boxed
            }
            None => Box::new(record),
        })
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
