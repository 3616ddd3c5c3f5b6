//! Blocks whose pages are pledged and can be taken without a search: all of an append are entered into the
//! books at once.

use super::{BlockRecord, Blocks};

impl Blocks {
    /// Takes pages, by class, off an owner's pledge, for blocks that [`Self::take_ready`] then gives to it.
    /// Returns `false`, and changes nothing, if they are not pledged or not ready.
    #[inline]
    pub(crate) fn charge_ready(&mut self, owner: u32, tenant: u32, pages: &[u64]) -> bool {
        if !self.is_within_pledge(owner, pages) || !self.pages.are_ready(owner, pages) {
            return false;
        }
        let pledges = &mut self.pledges[owner as usize * self.pledged.len()..];
        let mut bytes = 0;
        let totals = self.pledged.iter_mut().zip(self.pages.classes());
        for ((&pages, pledge), (pledged, class)) in pages.iter().zip(pledges).zip(totals) {
            *pledge -= pages;
            *pledged -= pages;
            bytes += pages * class.bytes;
        }
        self.used_bytes += bytes;
        let tenant = &mut self.tenants[tenant as usize];
        tenant.live += bytes;
        tenant.pledged -= bytes;
        true
    }

    /// Gives a block to a sequence that was charged for it, and its pages to `fresh`.
    #[inline]
    pub(crate) fn take_ready(
        &mut self,
        group: usize,
        owner: u32,
        tenant: u32,
        mut fresh: impl FnMut(u32),
    ) -> Option<u32> {
        let id = self.unused_id(group);
        let owner_generation = self.generations[owner as usize];
        let blocks = &mut self.groups[group];
        let start = id as usize * blocks.parts;
        for page in &mut blocks.pages[start..start + blocks.parts] {
            *page = self.pages.take_ready(blocks.class, owner)?;
            fresh(*page);
        }
        blocks.records[id as usize] = BlockRecord::new(owner, owner_generation, tenant);
        Some(id)
    }
}
