//! Live bytes by kind and tag, counted by slot.
//!
//! The thread that takes a block writes the request's tag into its record, without the heap. So each slot
//! counts the bytes it took from the heap under a tag, less those it put back there, from whichever slot. A
//! block in a stack stays counted under the tag it had last: usually the next request has the same tag, and
//! then the counts stay the same. Only if the tag differs is the block counted anew. The sum over all slots,
//! less the blocks in stacks, is the live bytes.
//!
//! The record of a plan serves several sizes: its blocks are counted when they are handed out and when they
//! return. A block that another thread frees is counted out by that thread, before it goes to the remote
//! free list.
//!
//! Blocks without a tag are not counted here: they are the rest of what the sharded counters have.

use crate::{Record, Tag, TagUse};
use orlop_core::MemoryKind;
use std::collections::HashMap;

/// Entries that are indexed directly.
const DIRECT: usize = 16;

/// The counts of one slot. A count may be negative, because of blocks that other slots took.
#[derive(Debug, Default)]
pub(super) struct TagCounts {
    /// Indexed by the lowest bits of the tag. A key's bytes are the sum of its entries here and in `others`.
    direct: [(u64, i64); DIRECT],
    others: HashMap<u64, i64>,
}

/// Packs kind and tag into one word. Never zero, because a tag that is counted is not zero.
fn key(kind: MemoryKind, tag: Tag) -> u64 {
    u64::from(tag.number()) << 8 | kind.index() as u64
}

/// Converts bytes to a signed count: no block is larger than half the address space.
fn signed(bytes: usize) -> i64 {
    (bytes as u64).cast_signed()
}

impl TagCounts {
    /// Adds a block, if it has a tag.
    #[inline(always)]
    pub(super) fn add_block(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            self.change(record.kind, record.tag, signed(record.granted));
        }
    }

    /// Removes a block that was [added](TagCounts::add_block).
    #[inline(always)]
    pub(super) fn remove_block(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            self.change(record.kind, record.tag, -signed(record.granted));
        }
    }

    /// Adds `bytes` to a tag.
    pub(super) fn add(&mut self, kind: MemoryKind, tag: Tag, bytes: usize) {
        if tag != Tag::NONE {
            self.change(kind, tag, signed(bytes));
        }
    }

    /// Not inlined, so that the paths of blocks without tags stay short.
    #[inline(never)]
    fn change(&mut self, kind: MemoryKind, tag: Tag, bytes: i64) {
        let key = key(kind, tag);
        // Tags are numbered in order, so that consecutive tags have different entries.
        let place = tag.number() as usize % DIRECT;
        let direct = &mut self.direct[place];
        if direct.0 == key {
            direct.1 += bytes;
        } else {
            self.evict(place, key, bytes);
        }
    }

    /// Replaces the direct entry, and moves the sum of the previous key to `others`.
    #[cold]
    #[inline(never)]
    fn evict(&mut self, place: usize, key: u64, bytes: i64) {
        let (before, sum) = std::mem::replace(&mut self.direct[place], (key, bytes));
        if sum != 0 {
            *self.others.entry(before).or_default() += sum;
        }
    }

    /// Adds the counts to `sums`.
    fn add_to(&self, sums: &mut HashMap<u64, i64>) {
        for (&key, &bytes) in self.others.iter().chain(self.direct.iter().map(|(key, bytes)| (key, bytes))) {
            if bytes != 0 {
                *sums.entry(key).or_default() += bytes;
            }
        }
    }
}

/// The counts of several slots together.
#[derive(Debug, Default)]
pub(super) struct TagSums(HashMap<u64, i64>);

impl TagSums {
    pub(super) fn add(&mut self, counts: &TagCounts) {
        counts.add_to(&mut self.0);
    }

    /// Removes a block that is counted but not live.
    pub(super) fn remove_block(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            *self.0.entry(key(record.kind, record.tag)).or_default() -= signed(record.granted);
        }
    }

    /// Returns live bytes by kind and tag. `live` returns the live bytes of a kind; what no tag accounts for
    /// is listed under [`Tag::NONE`].
    pub(super) fn uses(self, live: impl Fn(MemoryKind) -> u64) -> Vec<TagUse> {
        let mut uses = Vec::new();
        for kind in MemoryKind::ALL {
            let of_kind = self.0.iter().filter(|&(key, _)| key & 0xff == kind.index() as u64);
            let mut tagged = 0u64;
            for (key, &bytes) in of_kind {
                let number = u32::try_from(key >> 8).unwrap_or_default();
                // Blocks allocated and freed while the slots were visited may be counted on one side only.
                let bytes = u64::try_from(bytes).unwrap_or(0);
                tagged = tagged.saturating_add(bytes);
                uses.push(TagUse { kind, tag: Tag::from_number(number), bytes });
            }
            uses.push(TagUse { kind, tag: Tag::NONE, bytes: live(kind).saturating_sub(tagged) });
        }
        uses.retain(|part| part.bytes > 0);
        uses
    }
}
