//! Taking pages.

use super::{LargePage, LargePages, NULL};

impl LargePages {
    /// Returns `true` if a page of this class may be taken from a large page without a live page: the need
    /// for the class, of which the page is part, counts on one, or one is to spare.
    fn may_occupy(&self, class: u32, needs: &[u64]) -> bool {
        needs[class as usize] > self.classes[class as usize].slack || self.shortage(needs).spare() > 0
    }

    /// Takes a page for `owner`, without evicting: from a large page of the owner, from an empty one, from
    /// one of another owner. The page is live. `needs` as for [`Self::may_occupy`].
    pub(crate) fn take(&mut self, class: u32, owner: u32, needs: &[u64]) -> Option<u32> {
        let list = self.list(owner, class);
        let head = self.heads[list];
        if head != NULL && self.large[head as usize].live > 0 {
            return Some(self.take_from(head));
        }
        let may_occupy = self.may_occupy(class, needs);
        if let Some(own) = self.usable_in(list, may_occupy) {
            return Some(self.take_from(own));
        }
        if may_occupy && !self.empty.is_empty() {
            return self.take_of_empty(class, owner);
        }
        self.usable_of_others(class, may_occupy).map(|large| self.take_from(large))
    }

    /// Returns `true` if these pages, by class, are ready: they can be taken without a search, of the owner's
    /// first large page, or of empty ones whose only page they are.
    #[inline]
    pub(crate) fn are_ready(&self, owner: u32, pages: &[u64]) -> bool {
        let first = self.list(owner, 0);
        let heads = &self.heads[first..first + pages.len()];
        self.classes.iter().zip(pages).zip(heads).all(|((class, &pages), &head)| {
            if class.per_large == 1 {
                return pages <= self.empty.len() as u64;
            }
            let has_pages = |head: &LargePage| head.live > 0 && pages <= u64::from(head.free);
            pages == 0 || self.large.get(head as usize).is_some_and(has_pages)
        })
    }

    /// Takes a page that is ready for a need that is pledged to the owner.
    #[inline]
    pub(crate) fn take_ready(&mut self, class: u32, owner: u32) -> Option<u32> {
        if self.classes[class as usize].per_large == 1 {
            return self.take_whole(class, owner);
        }
        let head = self.heads[self.list(owner, class)];
        (head != NULL).then(|| self.take_from(head))
    }

    /// Takes a page of an empty large page, which becomes the owner's.
    fn take_of_empty(&mut self, class: u32, owner: u32) -> Option<u32> {
        if self.classes[class as usize].per_large == 1 {
            return self.take_whole(class, owner);
        }
        self.divide(class, owner).map(|large| self.take_from(large))
    }

    /// Takes the only page of an empty large page. That is in no list, and has no other page to count.
    #[inline]
    fn take_whole(&mut self, class: u32, owner: u32) -> Option<u32> {
        let large = self.empty.pop()?;
        let more = large as usize * self.more_words;
        self.more_bits[more..more + self.more_words].fill(0);
        let page = &mut self.large[large as usize];
        (page.class, page.owner, page.free, page.live, page.bits) = (class, owner, 0, 1, 0);
        self.occupied += 1;
        self.classes[class as usize].live += 1;
        Some(large)
    }

    /// Returns a large page of a list, which have free pages: one with a live page, if others may not be
    /// taken.
    fn usable_in(&self, list: usize, may_occupy: bool) -> Option<u32> {
        let mut at = self.heads[list];
        while at != NULL && !may_occupy && self.large[at as usize].live == 0 {
            at = self.large[at as usize].next;
        }
        (at != NULL).then_some(at)
    }

    /// Returns a large page of any owner with a free page: of ended sequences first.
    fn usable_of_others(&self, class: u32, may_occupy: bool) -> Option<u32> {
        if self.classes[class as usize].free == 0 {
            return None;
        }
        let mut lists = (class as usize..self.heads.len()).step_by(self.classes.len());
        lists.find_map(|list| self.usable_in(list, may_occupy))
    }

    fn divide(&mut self, class: u32, owner: u32) -> Option<u32> {
        let large = self.empty.pop()?;
        let per_large = self.classes[class as usize].per_large;
        for word in 0..=self.more_words {
            let left = (per_large as usize).saturating_sub(word * 64);
            *self.bits_mut(large, word) = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        }
        let page = &mut self.large[large as usize];
        (page.class, page.owner, page.free) = (class, owner, per_large);
        self.classes[class as usize].free += u64::from(per_large);
        self.link(large);
        Some(large)
    }

    fn take_from(&mut self, large: u32) -> u32 {
        let mut slot = 0;
        for word in 0..=self.more_words {
            let bits = self.bits_mut(large, word);
            if *bits != 0 {
                slot = u32::try_from(word * 64).unwrap_or(NULL) + bits.trailing_zeros();
                *bits &= *bits - 1;
                break;
            }
        }
        let page = &mut self.large[large as usize];
        page.free -= 1;
        let (class, is_full) = (page.class, page.free == 0);
        self.classes[class as usize].free -= 1;
        if is_full && self.classes[class as usize].per_large > 1 {
            self.unlink(large);
        }
        self.classes[class as usize].idle += 1;
        let id = large * self.classes[class as usize].per_large + slot;
        self.set_live(class, id);
        id
    }
}
