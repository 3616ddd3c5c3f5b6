//! Pledges: the pages that a sequence may still need.
//!
//! A sequence is pledged the pages that it may still need. A block that it allocates is taken from its
//! pledge, and it is the block's *owner*; when the block is no longer live, the owner gets its pages back. If
//! the owner lets go of a block of a rolling group (a window, a chunk, a state) that another sequence still
//! uses, the owner gets the pages back at once and the block is an *orphan*: the other sequence was pledged a
//! block of its own for it, so the sum of the pledges is too high by its pages. Hence what must remain
//! available is the pledges less the orphans.

use super::Blocks;

impl Blocks {
    /// Makes room for the lists and pledges of an owner.
    pub(crate) fn add_owner(&mut self, owner: u32) {
        self.pages.add_owner(owner);
        let needed = (owner as usize + 1) * self.pledged.len();
        if self.pledges.len() < needed {
            self.pledges.resize(needed, 0);
            self.generations.resize(owner as usize + 1, 0);
            self.owner_tenants.resize(owner as usize + 1, 0);
        }
    }

    /// Pledges pages by class to a sequence of a tenant.
    pub(crate) fn pledge(&mut self, owner: u32, tenant: u32, pages: &[u64]) {
        let start = owner as usize * self.pledged.len();
        self.owner_tenants[owner as usize] = tenant;
        self.tenants[tenant as usize].pledged += self.pages.bytes_of(pages);
        for (class, &pages) in pages.iter().enumerate() {
            self.pledges[start + class] += pages;
            self.pledged[class] += pages;
        }
    }

    /// Takes these pages, by class, from an owner's pledge, as far as it has them.
    pub(crate) fn lower_pledge(&mut self, owner: u32, pages: &[u64]) {
        let (start, before) = (owner as usize * self.pledged.len(), self.pledged_bytes(owner));
        for (class, &pages) in pages.iter().enumerate() {
            let taken = pages.min(self.pledges[start + class]);
            self.pledges[start + class] -= taken;
            self.pledged[class] -= taken;
        }
        let tenant = self.owner_tenants[owner as usize] as usize;
        self.tenants[tenant].pledged -= before - self.pledged_bytes(owner);
    }

    /// Takes back what remains of a pledge: the owner's sequence has ended.
    pub(crate) fn end_pledge(&mut self, owner: u32) {
        let generation = &mut self.generations[owner as usize];
        *generation = generation.wrapping_add(1);
        let tenant = self.owner_tenants[owner as usize] as usize;
        self.tenants[tenant].pledged -= self.pledged_bytes(owner);
        let start = owner as usize * self.pledged.len();
        for (pledge, total) in self.pledges[start..].iter_mut().zip(&mut self.pledged) {
            *total -= std::mem::take(pledge);
        }
    }

    /// Writes to `needs` the pages that must remain available if `owner` takes `pages` besides.
    pub(crate) fn demand(&self, owner: u32, pages: &[u64], needs: &mut Vec<u64>) {
        needs.clear();
        let start = owner as usize * self.pledged.len();
        for (class, &pages) in pages.iter().enumerate() {
            let rest = self.pledged[class] - pages.min(self.pledges[start + class]);
            needs.push(pages.saturating_add(rest.saturating_sub(self.orphans[class])));
        }
    }

    /// Returns the bytes that an owner is still pledged.
    fn pledged_bytes(&self, owner: u32) -> u64 {
        let pledges = &self.pledges[owner as usize * self.pledged.len()..];
        self.pages.bytes_of(&pledges[..self.pledged.len()])
    }

    /// Returns `true` if an owner's pledge has these pages, by class, so that they are there: no other pledge
    /// counts on them.
    #[inline]
    pub(crate) fn is_within_pledge(&self, owner: u32, pages: &[u64]) -> bool {
        let pledges = &self.pledges[owner as usize * self.pledged.len()..];
        let others = self.pledged.iter().zip(&self.orphans);
        pages.iter().zip(pledges).zip(others).all(|((&pages, &pledge), (&pledged, &orphans))| {
            pages == 0 || (pages <= pledge && pledged - pages >= orphans)
        })
    }

    /// Returns the bytes of pages, by class, beyond what an owner is pledged.
    pub(crate) fn bytes_beyond_pledge(&self, owner: u32, pages: &[u64]) -> u64 {
        let pledges = &self.pledges[owner as usize * self.pledged.len()..];
        let beyond = pages.iter().zip(pledges).map(|(&pages, &pledge)| pages.saturating_sub(pledge));
        self.pages.classes().iter().zip(beyond).map(|(class, pages)| class.bytes * pages).sum()
    }

    /// Gives an owner the pages of a block back.
    pub(crate) fn credit(&mut self, group: usize, owner: u32) {
        let (class, parts) = self.class_and_parts(group);
        self.pledges[owner as usize * self.pledged.len() + class] += parts;
        self.pledged[class] += parts;
        let bytes = self.pages.classes()[class].bytes * parts;
        self.tenants[self.owner_tenants[owner as usize] as usize].pledged += bytes;
    }

    /// Takes the pages of a block from an owner's pledge.
    pub(crate) fn charge(&mut self, group: usize, owner: u32) {
        let (class, parts) = self.class_and_parts(group);
        let pledge = &mut self.pledges[owner as usize * self.pledged.len() + class];
        let taken = parts.min(*pledge);
        *pledge -= taken;
        self.pledged[class] -= taken;
        let bytes = self.pages.classes()[class].bytes * taken;
        self.tenants[self.owner_tenants[owner as usize] as usize].pledged -= bytes;
    }
}
