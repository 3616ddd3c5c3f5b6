//! Live bytes by kind and tag, counted by slot.
//!
//! Who asked for a block is written into its record by the thread that takes it, and the heap is not told. So each slot
//! counts what it took from the heap under a tag, less what it put back there, whoever had taken that. A block that waits in
//! a stack stays counted under the tag that it had last: mostly the next request has the same, and then nothing is to be
//! done. Only if it has another, the block is counted anew. The sum over all slots, less what waits in stacks, is what lives.
//!
//! The record of a plan serves several sizes: such blocks are counted when they are handed out and when they come back. A
//! block that another thread returned is counted out by that one, before it goes home.
//!
//! Blocks without a tag are not counted here: what the ledger has beside the others is theirs.

use crate::{Record, Tag, TagUse};
use orlop_core::MemoryKind;
use std::collections::HashMap;

/// Tags that a slot has close at hand.
const NEAR: usize = 16;

/// One slot's counts. A count may be negative: of what other slots handed out.
#[derive(Debug, Default)]
pub(super) struct TagCounts {
    /// By the lowest bits of the key; a key is in its place here or in `others`, or in both.
    near: [(u64, i64); NEAR],
    others: HashMap<u64, i64>,
}

/// Kind and tag in one word; never zero, because there is a tag.
fn key(kind: MemoryKind, tag: Tag) -> u64 {
    u64::from(tag.number()) << 8 | kind.index() as u64
}

/// Bytes as a difference: no block has more than half the address space.
fn signed(bytes: usize) -> i64 {
    (bytes as u64).cast_signed()
}

impl TagCounts {
    /// Counts a block from now on, if it has a tag.
    #[inline(always)]
    pub(super) fn enter(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            self.change(record.kind, record.tag, signed(record.granted));
        }
    }

    /// Counts a block that has [entered](TagCounts::enter) no more.
    #[inline(always)]
    pub(super) fn leave(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            self.change(record.kind, record.tag, -signed(record.granted));
        }
    }

    /// Counts so many bytes more.
    pub(super) fn add(&mut self, kind: MemoryKind, tag: Tag, bytes: usize) {
        if tag != Tag::NONE {
            self.change(kind, tag, signed(bytes));
        }
    }

    /// Not inlined, so that the ways of blocks without tags are short.
    #[inline(never)]
    fn change(&mut self, kind: MemoryKind, tag: Tag, bytes: i64) {
        let key = key(kind, tag);
        // Tags are numbered in order, so that neighbours do not share a place.
        let place = tag.number() as usize % NEAR;
        let near = &mut self.near[place];
        if near.0 == key {
            near.1 += bytes;
        } else {
            self.add_far(place, key, bytes);
        }
    }

    /// Puts another key close at hand.
    #[cold]
    #[inline(never)]
    fn add_far(&mut self, place: usize, key: u64, bytes: i64) {
        let (before, sum) = std::mem::replace(&mut self.near[place], (key, bytes));
        if sum != 0 {
            *self.others.entry(before).or_default() += sum;
        }
    }

    /// Adds what is counted here to `sums`.
    fn add_to(&self, sums: &mut HashMap<u64, i64>) {
        for (&key, &bytes) in self.others.iter().chain(self.near.iter().map(|(key, bytes)| (key, bytes))) {
            if bytes != 0 {
                *sums.entry(key).or_default() += bytes;
            }
        }
    }
}

/// What several slots have counted together.
#[derive(Debug, Default)]
pub(super) struct TagSums(HashMap<u64, i64>);

impl TagSums {
    pub(super) fn add(&mut self, counts: &TagCounts) {
        counts.add_to(&mut self.0);
    }

    /// Without a block that is counted and does not live.
    pub(super) fn leave(&mut self, record: &Record) {
        if record.tag != Tag::NONE {
            *self.0.entry(key(record.kind, record.tag)).or_default() -= signed(record.granted);
        }
    }

    /// By kind and tag, with what has no tag: the rest of what `live` says of each kind.
    pub(super) fn uses(self, live: impl Fn(MemoryKind) -> u64) -> Vec<TagUse> {
        let mut uses = Vec::new();
        for kind in MemoryKind::ALL {
            let of_kind = self.0.iter().filter(|&(key, _)| key & 0xff == kind.index() as u64);
            let mut tagged = 0u64;
            for (key, &bytes) in of_kind {
                let number = u32::try_from(key >> 8).unwrap_or_default();
                // Blocks that came and went while the slots were visited may be seen on one side only.
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
