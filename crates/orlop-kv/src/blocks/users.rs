//! Users of blocks: the sequences that have a block in a table.

use super::{Blocks, ORPHAN};
use crate::pages::{NO_OWNER, NULL};

impl Blocks {
    /// Adds a sequence to the users. It becomes the owner of a rolling group's block that was idle.
    pub(crate) fn add_user(&mut self, group: usize, block: u32, owner: u32) {
        let is_rolling = self.groups[group].is_rolling;
        let record = &mut self.groups[group].records[block as usize];
        record.users += 1;
        let (is_first, was_idle) = (record.users == 1, record.pins == 0);
        if was_idle && is_rolling {
            self.set_owner(group, block, owner);
            self.charge(group, owner);
        } else if is_first && !was_idle {
            // Pinned by a step or a ticket only: its owner has let go of it.
            self.leave_to_others(group, block);
        }
        if is_first {
            self.used_bytes += self.block_bytes(group);
        }
        self.pin(group, block);
    }

    /// Adds a sequence to the users of these blocks, except [`NULL`].
    pub(crate) fn add_users(&mut self, group: usize, blocks: &[u32], owner: u32) {
        for &block in blocks.iter().filter(|&&block| block != NULL) {
            self.add_user(group, block, owner);
        }
    }

    /// Adds a sequence to the users of a fork's blocks, which another sequence uses. Tokens before `len` must
    /// not be written by others.
    pub(crate) fn share(&mut self, group: usize, blocks: &[u32], span: u32, len: u32) {
        let records = &mut self.groups[group].records;
        let mut left = len;
        for &block in blocks {
            if block != NULL {
                let record = &mut records[block as usize];
                record.users += 1;
                record.pins += 1;
                record.valid = record.valid.max(left.min(span));
            }
            left = left.saturating_sub(span);
        }
    }

    /// Ends a sequence's use; the pin stays.
    pub(crate) fn remove_user(&mut self, group: usize, block: u32, owner: u32) {
        let record = &mut self.groups[group].records[block as usize];
        record.users -= 1;
        if record.users == 0 {
            self.used_bytes -= self.block_bytes(group);
        } else if self.live_owner(self.record(group, block)) == Some(owner) {
            self.leave_to_others(group, block);
        }
    }

    /// The owner, if there is one, gets the pages of a block back that others use.
    fn leave_to_others(&mut self, group: usize, block: u32) {
        let Some(owner) = self.live_owner(self.record(group, block)) else { return };
        let (class, parts) = self.class_and_parts(group);
        let is_rolling = self.groups[group].is_rolling;
        let record = &mut self.groups[group].records[block as usize];
        record.owner = if is_rolling { ORPHAN } else { NO_OWNER };
        if is_rolling {
            self.orphans[class] += parts;
            self.credit(group, owner);
        }
    }
}
