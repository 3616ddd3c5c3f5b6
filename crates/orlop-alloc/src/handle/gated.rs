//! Budget gates: requests by any handle of an allocator go through the gate that a context put in front of
//! it, also by handles that are older than the gate.
//!
//! The gate itself, and the contexts, use the functions for requests that pass no gate. The cell has a weak
//! handle, because the gate has a handle of the allocator: it ends with its context.

use super::cell::GATED;
use super::{AllocatorRef, WeakAllocator};
use crate::{Allocator, Block, Request, Result};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// Puts a gate in front of the allocator: [`AllocatorRef::allocate`] goes through it from now on, as long
    /// as the gate exists. An earlier gate that still exists stays.
    ///
    /// A request goes through one gate: one in front of the gate itself does not receive it.
    ///
    /// An adaptor that was put over this handle calls the allocator and not the gate.
    pub fn set_gate(&self, gate: &AllocatorRef) {
        let cell = self.cell();
        let mut place = cell.link.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|gate| !gate.is_destroyed()) {
            return;
        }
        *place = Some(gate.downgrade());
        // Relaxed: a request on another thread meanwhile may pass.
        cell.head.closed.fetch_or(GATED, Ordering::Relaxed);
    }

    /// Allocates a block as [`AllocatorRef::allocate`] does, past the gate.
    ///
    /// # Errors
    ///
    /// Those of [`AllocatorRef::allocate`].
    #[inline]
    pub fn allocate_ungated(&self, request: &Request) -> Result<Block> {
        match self.head().take_cached_ungated(request) {
            Some(mut raw) => {
                raw.set_owner(self.owner());
                Ok(Block::new(raw))
            }
            None => self.allocate_ungated_out_of_line(request),
        }
    }

    #[inline(never)]
    fn allocate_ungated_out_of_line(&self, request: &Request) -> Result<Block> {
        self.allocate_ungated_slow(request)
    }

    /// Returns the gate, if there is one and its context exists.
    pub(super) fn gate(&self) -> Option<AllocatorRef> {
        let cell = self.cell();
        if cell.head.closed.load(Ordering::Relaxed) & GATED == 0 {
            return None;
        }
        let place = cell.link.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = place.as_ref().and_then(WeakAllocator::upgrade);
        if gate.is_none() {
            // Under the lock, so that a new gate is not missed.
            cell.head.closed.fetch_and(!GATED, Ordering::Relaxed);
        }
        gate
    }
}
