//! What a thread has at hand: for each class a stack of blocks that were returned and not yet merged.

use super::class_in;
use super::classes::CLASSES;
use crate::{AllocationId, Record};
use std::ptr::NonNull;

const WORDS: usize = CLASSES / 64;

/// One thread's stacks, linked through the records of the blocks.
///
/// A stack owns its records: each is in one stack, and nobody else reaches it.
#[derive(Debug)]
pub(super) struct Front {
    tops: [Option<NonNull<Record>>; CLASSES],
    /// Bit `c`: stack `c` was not empty when it was last put to. Those whose bit is not set are empty.
    filled: [u64; WORDS],
    /// Bytes in all stacks.
    cached: usize,
    /// With more bytes than this the quick way in is shut.
    most: usize,
}

// SAFETY: the records in the stacks are the front's own, and records may be sent.
unsafe impl Send for Front {}

impl Default for Front {
    fn default() -> Self {
        Self { tops: [None; CLASSES], filled: [0; WORDS], cached: 0, most: 0 }
    }
}

impl Front {
    /// The block that [`Front::take`] would take.
    #[inline(always)]
    pub(super) fn top(&self, class: usize) -> Option<&Record> {
        // SAFETY: a record of the stack, which owns it and is borrowed.
        self.tops.get(class)?.map(|top| unsafe { top.as_ref() })
    }

    /// A block of this class.
    #[inline(always)]
    pub(super) fn take(&mut self, class: usize) -> Option<Box<Record>> {
        let top = self.tops.get_mut(class)?;
        // SAFETY: `put` leaked this box into the stack, which owns it: taken back once.
        let record = unsafe { Box::from_raw((*top)?.as_ptr()) };
        *top = record.link;
        self.cached -= record.granted;
        Some(record)
    }

    /// Whether a block of this class may be put by the quick way.
    #[inline(always)]
    pub(super) fn has_room(&self, class: usize) -> bool {
        class < CLASSES && self.cached < self.most
    }

    /// Keeps a block of a class.
    #[inline(always)]
    pub(super) fn put(&mut self, mut record: Box<Record>) {
        let class = class_in(record.token);
        // Who frees its address a second time is told.
        record.id = AllocationId::NONE;
        self.cached += record.granted;
        record.link = self.tops[class];
        if record.link.is_none() {
            self.filled[class / 64] |= 1 << (class % 64);
        }
        self.tops[class] = Some(NonNull::from(Box::leak(record)));
    }

    /// Bytes in all stacks.
    pub(super) fn cached(&self) -> usize {
        self.cached
    }

    /// Shuts the quick way in above so many bytes.
    pub(super) fn set_most(&mut self, bytes: usize) {
        self.most = bytes;
    }

    /// Takes all blocks out; whether there were any.
    pub(super) fn drain(&mut self, mut give: impl FnMut(Box<Record>)) -> bool {
        let any = self.cached > 0;
        for word in 0..WORDS {
            let mut filled = std::mem::take(&mut self.filled[word]);
            while filled != 0 {
                let class = 64 * word + filled.trailing_zeros() as usize;
                filled &= filled - 1;
                while let Some(record) = self.take(class) {
                    give(record);
                }
            }
        }
        any
    }

    /// All blocks, to look at, with their classes.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, &Record)> + '_ {
        (0..CLASSES).flat_map(|class| {
            let mut next = self.tops[class];
            std::iter::from_fn(move || {
                // SAFETY: a record of the stack, which owns it and is borrowed.
                let record = unsafe { next?.as_ref() };
                next = record.link;
                Some((class, record))
            })
        })
    }

    /// Whether the bits and bytes say what is there.
    pub(super) fn is_consistent(&self) -> bool {
        let bytes: usize = self.records().map(|(_, record)| record.granted).sum();
        let listed = |class: usize| self.filled[class / 64] & (1 << (class % 64)) != 0;
        bytes == self.cached && (0..CLASSES).all(|class| self.tops[class].is_none() || listed(class))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The engine has emptied it; what is left after a panic is only the records' memory.
        self.drain(drop);
    }
}
