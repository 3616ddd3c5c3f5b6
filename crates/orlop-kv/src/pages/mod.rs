//! Large pages and the pages inside them: who owns which, and what can be freed.
//!
//! A large page is empty, or divided into pages of one size (a *class*). It belongs to the sequence that
//! divided it, and that sequence takes its free pages first: so the pages of a sequence are freed together,
//! and an empty large page returns at once.
//!
//! A page in use is *live*, or *idle* if only the cache has it: an idle page can be evicted. For each class
//! the live pages of partly live large pages are counted, so that [`LargePages::shortage`] says exactly what
//! could be allocated if the whole cache were evicted, before anything is.

mod take;
mod verify;

use crate::free_ids::FreeIds;
use crate::geometry::KvGeometry;
use std::ops::Range;

/// No page, no block, no node: the null id.
pub(crate) const NULL: u32 = u32::MAX;

/// The owner of large pages whose sequence has ended.
pub(crate) const NO_OWNER: u32 = 0;

/// A large page: half a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct LargePage {
    class: u32,
    owner: u32,
    /// Free pages inside.
    free: u32,
    live: u32,
    /// Neighbours in the owner's list of large pages with free pages.
    prev: u32,
    next: u32,
    /// A bit for each free page of the first 64.
    bits: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct PageClass {
    pub(crate) bytes: u64,
    /// Pages of a large page.
    pub(crate) per_large: u32,
    /// Free pages in divided large pages.
    free: u64,
    /// Pages that are not live, in large pages with a live one.
    slack: u64,
    pub(crate) live: u64,
    pub(crate) idle: u64,
}

/// What is missing for a list of needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// Large pages needed, and large pages that are empty or could become so.
    pub(crate) needed: u64,
    pub(crate) available: u64,
}

impl Shortage {
    pub(crate) fn fits(self) -> bool {
        self.needed <= self.available
    }

    /// Large pages that remain.
    pub(crate) fn spare(self) -> u64 {
        self.available.saturating_sub(self.needed)
    }
}

#[derive(Debug)]
pub(crate) struct LargePages {
    large: Vec<LargePage>,
    empty: FreeIds,
    /// The large pages that were emptied, while that is recorded.
    emptied: Option<Vec<u32>>,
    /// A bit for each free page behind the first 64: `more_words` words for each large page.
    more_bits: Vec<u64>,
    more_words: usize,
    classes: Vec<PageClass>,
    /// The heads of lists of large pages with free pages: by owner, then class.
    heads: Vec<u32>,
    /// Large pages with a live page.
    occupied: u32,
    /// Large pages whose memory was returned: they are neither empty nor divided.
    absent: Vec<bool>,
    absent_count: u32,
}

impl LargePages {
    pub(crate) fn new(geometry: &KvGeometry, count: u32) -> Self {
        let large_page = geometry.large_page_bytes();
        let classes: Vec<PageClass> = geometry
            .classes()
            .iter()
            .map(|&bytes| {
                let per_large = u32::try_from(large_page / bytes).unwrap_or(u32::MAX);
                PageClass { bytes, per_large, free: 0, slack: 0, live: 0, idle: 0 }
            })
            .collect();
        let widest = classes.iter().map(|class| class.per_large).max().unwrap_or(0);
        let more_words = widest.div_ceil(64).saturating_sub(1) as usize;
        let (class, owner, prev, next) = (NULL, NO_OWNER, NULL, NULL);
        let page = LargePage { class, owner, free: 0, live: 0, prev, next, bits: 0 };
        let heads = vec![NULL; classes.len()];
        Self {
            large: vec![page; count as usize],
            empty: FreeIds::all(count),
            emptied: None,
            more_bits: vec![0; more_words * count as usize],
            more_words,
            classes,
            heads,
            occupied: 0,
            absent: vec![false; count as usize],
            absent_count: 0,
        }
    }

    pub(crate) fn classes(&self) -> &[PageClass] {
        &self.classes
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.large.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn empty(&self) -> u32 {
        u32::try_from(self.empty.len()).unwrap_or(u32::MAX)
    }

    /// Returns the large pages that are empty, or could become so by evictions.
    pub(crate) fn available(&self) -> u32 {
        self.count() - self.absent_count - self.occupied
    }

    /// Returns the large pages that have memory.
    pub(crate) fn present(&self) -> u32 {
        self.count() - self.absent_count
    }

    /// Returns `true` if the memory of a large page was returned.
    pub(crate) fn is_absent(&self, large: u32) -> bool {
        self.absent[large as usize]
    }

    /// Returns `true` if a large page has pages that are not free.
    pub(crate) fn is_divided(&self, large: u32) -> bool {
        self.large[large as usize].class != NULL
    }

    /// Records the large pages that are emptied from here on.
    pub(crate) fn record_emptied(&mut self) {
        self.emptied = Some(Vec::new());
    }

    /// Returns the large pages that were emptied since [`Self::record_emptied`], and ends the record.
    pub(crate) fn take_emptied(&mut self) -> Vec<u32> {
        self.emptied.take().unwrap_or_default()
    }

    /// Returns `true` if these large pages have memory, and evictions could empty them.
    pub(crate) fn can_be_empty(&self, mut range: Range<u32>) -> bool {
        range.all(|large| self.large[large as usize].live == 0 && !self.absent[large as usize])
    }

    /// Takes empty large pages away, whose memory is returned.
    pub(crate) fn take_away(&mut self, range: Range<u32>) {
        range.clone().for_each(|large| self.empty.remove(large));
        self.absent_count += range.end - range.start;
        self.absent[range.start as usize..range.end as usize].fill(true);
    }

    /// Gives large pages back, whose memory is there again.
    pub(crate) fn give_back(&mut self, range: Range<u32>) {
        self.absent_count -= range.end - range.start;
        self.absent[range.start as usize..range.end as usize].fill(false);
        range.for_each(|large| self.empty.insert(large));
    }

    /// Returns the live pages of a large page.
    pub(crate) fn live_in(&self, large: u32) -> u32 {
        self.large[large as usize].live
    }

    /// Makes room for the lists of `owner`.
    pub(crate) fn add_owner(&mut self, owner: u32) {
        let lists = (owner as usize + 1) * self.classes.len();
        if self.heads.len() < lists {
            self.heads.resize(lists, NULL);
        }
    }

    /// Returns the bytes of pages by class, at most `u64::MAX`.
    pub(crate) fn bytes_of(&self, pages: &[u64]) -> u64 {
        let bytes = self.classes.iter().zip(pages).map(|(class, &pages)| class.bytes.saturating_mul(pages));
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns what `needs`, pages by class, would need if every idle page were evicted.
    pub(crate) fn shortage(&self, needs: &[u64]) -> Shortage {
        let each = self
            .classes
            .iter()
            .zip(needs)
            .map(|(class, &need)| need.saturating_sub(class.slack).div_ceil(u64::from(class.per_large)));
        Shortage { needed: each.fold(0, u64::saturating_add), available: u64::from(self.available()) }
    }

    /// Returns `true` if `needs` fit for sure when pages come into use: `pins`, by class, wherever they are.
    pub(crate) fn fits_beside(&self, needs: &[u64], pins: &[u64]) -> bool {
        // A page that comes into use is no more to spare in a large page, or takes a large page away.
        let classes = self.classes.iter().zip(needs).zip(pins).map(|((class, &need), &pins)| {
            let slack = class.slack.saturating_sub(pins);
            pins.saturating_add(need.saturating_sub(slack).div_ceil(u64::from(class.per_large)))
        });
        classes.fold(0, u64::saturating_add) <= u64::from(self.available())
    }

    /// Returns `true` if these pages, by class, are free now.
    pub(crate) fn has_free(&self, needs: &[u64]) -> bool {
        let large = self
            .classes
            .iter()
            .zip(needs)
            .map(|(class, &need)| need.saturating_sub(class.free).div_ceil(u64::from(class.per_large)));
        large.fold(0, u64::saturating_add) <= u64::from(self.empty())
    }

    /// Marks an idle page as live.
    pub(crate) fn set_live(&mut self, class: u32, id: u32) {
        let class = &mut self.classes[class as usize];
        let page = &mut self.large[(id / class.per_large) as usize];
        page.live += 1;
        class.live += 1;
        class.idle -= 1;
        if page.live == 1 {
            self.occupied += 1;
            class.slack += u64::from(class.per_large);
        }
        class.slack -= 1;
    }

    /// Marks a live page as idle.
    pub(crate) fn set_idle(&mut self, class: u32, id: u32) {
        let class = &mut self.classes[class as usize];
        let page = &mut self.large[(id / class.per_large) as usize];
        page.live -= 1;
        class.live -= 1;
        class.idle += 1;
        class.slack += 1;
        if page.live == 0 {
            self.occupied -= 1;
            class.slack -= u64::from(class.per_large);
        }
    }

    /// Frees an idle page.
    pub(crate) fn free(&mut self, class: u32, id: u32) {
        let PageClass { per_large, .. } = self.classes[class as usize];
        let (large, slot) = (id / per_large, id % per_large);
        *self.bits_mut(large, slot as usize / 64) |= 1 << (slot % 64);
        self.classes[class as usize].idle -= 1;
        self.classes[class as usize].free += 1;
        let page = &mut self.large[large as usize];
        page.free += 1;
        let free = page.free;
        if free == 1 && per_large > 1 {
            self.link(large);
        }
        if free == per_large {
            if per_large > 1 {
                self.unlink(large);
            }
            self.large[large as usize].class = NULL;
            self.classes[class as usize].free -= u64::from(per_large);
            self.empty.insert(large);
            if let Some(emptied) = &mut self.emptied {
                emptied.push(large);
            }
        }
    }

    /// Returns the free pages of the large page that has this page.
    pub(crate) fn free_beside(&self, class: u32, id: u32) -> Option<u32> {
        let large = id / self.classes[class as usize].per_large;
        self.large.get(large as usize).map(|page| page.free)
    }

    /// Gives the large pages of an ended sequence to no owner. Those without free pages keep the owner's
    /// number, which is harmless: it is a hint, and the next sequence with this number gets their pages
    /// first.
    pub(crate) fn disown(&mut self, owner: u32) {
        for class in 0..u32::try_from(self.classes.len()).unwrap_or(0) {
            let list = self.list(owner, class);
            while self.heads[list] != NULL {
                let large = self.heads[list];
                self.unlink(large);
                self.large[large as usize].owner = NO_OWNER;
                self.link(large);
            }
        }
    }

    /// Returns the bits of 64 pages of a large page.
    fn bits_mut(&mut self, large: u32, word: usize) -> &mut u64 {
        match word.checked_sub(1) {
            None => &mut self.large[large as usize].bits,
            Some(more) => &mut self.more_bits[large as usize * self.more_words + more],
        }
    }

    fn list(&self, owner: u32, class: u32) -> usize {
        owner as usize * self.classes.len() + class as usize
    }

    fn link(&mut self, large: u32) {
        let LargePage { class, owner, .. } = self.large[large as usize];
        let list = self.list(owner, class);
        let next = std::mem::replace(&mut self.heads[list], large);
        (self.large[large as usize].prev, self.large[large as usize].next) = (NULL, next);
        if next != NULL {
            self.large[next as usize].prev = large;
        }
    }

    fn unlink(&mut self, large: u32) {
        let LargePage { class, owner, prev, next, .. } = self.large[large as usize];
        if prev == NULL {
            let list = self.list(owner, class);
            self.heads[list] = next;
        } else {
            self.large[prev as usize].next = next;
        }
        if next != NULL {
            self.large[next as usize].prev = prev;
        }
    }
}
