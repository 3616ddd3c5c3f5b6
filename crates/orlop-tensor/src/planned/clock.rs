//! The clock of planned memory, and the ends of tensors.
//!
//! A move has two passes. The first settles the tensors whose time will be over: nothing but the prepared
//! ones is left of them, or it fails, and all of them are as live as before. The second ends them, and cannot
//! fail. So no tensor is lent that the clock takes for ended.

use super::check::check;
use super::{NEVER, PlannedError, PlannedMemory, PlannedPart, Slot, is_live};
use crate::error::RevokedBy;
use std::slice;

impl PlannedMemory {
    /// Moves the clock to `step`, and ends the tensors whose lifetimes are over by then. Clones and views of
    /// them that are still held are revoked.
    ///
    /// # Errors
    ///
    /// [`PlannedError::Backwards`]; [`PlannedError::InUse`] if a tensor cannot be ended: the clock then has
    /// not moved, and no tensor has ended. Clones and views of others may be revoked already.
    #[inline]
    pub fn advance(&mut self, step: u64) -> Result<(), PlannedError> {
        Self::advance_all(slice::from_mut(self), step).map_err(|(_, error)| error)
    }

    /// Ends all tensors but those whose lifetimes never end, and sets the clock to 0.
    ///
    /// # Errors
    ///
    /// [`PlannedError::InUse`], as for [`PlannedMemory::advance`].
    pub fn restart(&mut self) -> Result<(), PlannedError> {
        Self::restart_all(slice::from_mut(self)).map_err(|(_, error)| error)
    }

    /// Replaces the parts, in the same block. The clock is at 0 afterwards.
    ///
    /// # Errors
    ///
    /// Those of [`PlannedMemory::new`]; [`PlannedError::InUse`] if a tensor, also one whose lifetime never
    /// ends, is used. The parts are then as before.
    pub fn divide(&mut self, parts: &[PlannedPart]) -> Result<(), PlannedError> {
        Self::divide_all(&mut [(self, parts)]).map_err(|(_, error)| error)
    }

    /// [`PlannedMemory::advance`] for several: all of them, or none.
    ///
    /// # Errors
    ///
    /// The error with the index of its memory. No clock has moved then.
    #[inline]
    pub fn advance_all(memories: &mut [Self], step: u64) -> Result<(), (usize, PlannedError)> {
        for (index, memory) in memories.iter_mut().enumerate() {
            if step < memory.now {
                return Err((index, PlannedError::Backwards { step, now: memory.now }));
            }
            memory.settle_until(step, RevokedBy::Step(step)).map_err(|error| (index, error))?;
        }
        for memory in memories {
            memory.end_settled();
            memory.now = step;
        }
        Ok(())
    }

    /// [`PlannedMemory::restart`] for several: all of them, or none.
    ///
    /// # Errors
    ///
    /// The error with the index of its memory. No clock has moved then.
    pub fn restart_all(memories: &mut [Self]) -> Result<(), (usize, PlannedError)> {
        for (index, memory) in memories.iter_mut().enumerate() {
            memory.settle_until(NEVER, RevokedBy::NextRun).map_err(|error| (index, error))?;
        }
        for memory in memories {
            memory.end_settled();
            (memory.ended, memory.now) = (0, 0);
            memory.parts.iter_mut().filter_map(|part| part.lent.as_mut()).for_each(|lent| lent.restart());
        }
        Ok(())
    }

    /// [`PlannedMemory::divide`] for several: all of them, or none.
    ///
    /// # Errors
    ///
    /// The error with the index of its memory. All parts are as before then.
    pub fn divide_all(memories: &mut [(&mut Self, &[PlannedPart])]) -> Result<(), (usize, PlannedError)> {
        for (index, (memory, parts)) in memories.iter_mut().enumerate() {
            let settled = check(parts, memory.root.requested, memory.root.align)
                .and_then(|()| memory.settle_until(NEVER, RevokedBy::NewPlan))
                .and_then(|()| memory.settle_endless());
            settled.map_err(|error| (index, error))?;
        }
        for (memory, parts) in memories {
            let (root, ops) = (memory.root.clone(), memory.ops.take());
            let is_sanitized = memory.sanitizer.is_some();
            **memory = Self { ops, ..Self::of_checked(root, parts) };
            // It was possible before, except for the memory of the copy.
            drop(memory.sanitize(is_sanitized));
        }
        Ok(())
    }

    /// Settles the tensors whose time is over at `step`.
    #[inline]
    fn settle_until(&mut self, step: u64, by: RevokedBy) -> Result<(), PlannedError> {
        if self.sanitizer.is_some() {
            self.check_bytes()?;
        }
        let mut settled = self.ended;
        while let Some(&(end, slot)) = self.ends.get(settled)
            && end <= step
        {
            self.settle(slot, step, by)?;
            settled += 1;
        }
        self.settled = settled;
        Ok(())
    }

    /// Settles the tensors whose time is never over.
    fn settle_endless(&mut self) -> Result<(), PlannedError> {
        for slot in 0..self.slots.len() {
            let Slot { part, lifetime, .. } = &self.slots[slot];
            if lifetime.end != NEVER {
                continue;
            }
            if !self.is_part_settled(*part) {
                self.revoke(slot, RevokedBy::NewPlan)?;
            }
            if self.is_streamed {
                self.join_streams(slot)?;
            }
        }
        Ok(())
    }

    /// Revokes what is left of a tensor that ends before `step`, and orders what comes after its part.
    #[inline]
    fn settle(&mut self, slot: usize, step: u64, by: RevokedBy) -> Result<(), PlannedError> {
        let part = self.slots[slot].part;
        if !self.is_part_settled(part) && !self.goes_on(part, step) {
            self.revoke(slot, by)?;
        }
        if self.is_streamed && self.ends_part(slot) { self.join_streams(slot) } else { Ok(()) }
    }

    /// Returns `true` if a tensor of the part is live now and at `step`. Its clones and views are not
    /// distinguished from those of the tensors that end meanwhile: they have one storage.
    #[cold]
    fn goes_on(&self, part: usize, step: u64) -> bool {
        let part = &self.parts[part];
        let goes_on = |slot: &Slot| is_live(&slot.lifetime, self.now) && is_live(&slot.lifetime, step);
        match &part.lent {
            None => self.slots[part.slots.clone()].iter().any(goes_on),
            // The part was searched for clones just before.
            Some(lent) => lent.lent().iter().any(|&slot| goes_on(&self.slots[slot])),
        }
    }

    /// Returns `true` if the part of a tensor ends with it.
    fn ends_part(&self, slot: usize) -> bool {
        let Slot { part, lifetime, .. } = &self.slots[slot];
        self.parts[*part].lifetime.end == lifetime.end
    }

    /// Ends the tensors that are settled. Nothing has used them since.
    #[inline]
    fn end_settled(&mut self) {
        if self.sanitizer.is_some() {
            (self.ended..self.settled).for_each(|index| self.end_bytes(self.ends[index].1));
        }
        self.ended = self.settled;
    }

    #[cold]
    #[inline(never)]
    fn check_bytes(&mut self) -> Result<(), PlannedError> {
        let Some(mut sanitizer) = self.sanitizer.take() else { return Ok(()) };
        let result = sanitizer.check(self);
        self.sanitizer = Some(sanitizer);
        result
    }

    #[cold]
    #[inline(never)]
    fn end_bytes(&mut self, slot: usize) {
        if self.ends_part(slot)
            && let Some(mut sanitizer) = self.sanitizer.take()
        {
            sanitizer.end(self, self.slots[slot].part);
            self.sanitizer = Some(sanitizer);
        }
    }
}
