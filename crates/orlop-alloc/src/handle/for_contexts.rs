//! What a context does with the handle of an allocator: gates, observers that it shares, its mark.
//!
//! # Budget gates
//!
//! Requests by any handle of an allocator go through the gate that a context put in front of it, also by
//! handles that are older than the gate. The gate itself, and the contexts, use the functions for requests
//! that pass no gate. The cell has a weak handle, because the gate has a handle of the allocator: it ends
//! with its context.

use super::cell::GATED;
use super::{AllocatorRef, WeakAllocator};
use crate::observer::{RegionDelivery, RegionWatch, SharedObserver, Watch, WatchList};
use crate::{Allocator, Block, Observer, Request, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What contexts are built from, for every [`AllocatorRef`].
pub trait ContextHandle {
    /// Returns the number of the context that recorded the allocator last, or zero. One relaxed load: a
    /// number is never reused, and what was recorded is behind a lock.
    fn context_number(&self) -> u64;

    /// Records the number of a context: see [`ContextHandle::context_number`]. That context does not look at
    /// the allocator again.
    fn set_context_number(&self, context: u64);

    /// Puts a gate in front of the allocator: [`AllocatorRef::allocate`] goes through it from now on, as long
    /// as the gate exists. An earlier gate that still exists stays.
    ///
    /// A request goes through one gate: one in front of the gate itself does not receive it.
    ///
    /// An adaptor that was put over this handle calls the allocator and not the gate.
    fn set_gate(&self, gate: &AllocatorRef);

    /// Allocates a block as [`AllocatorRef::allocate`] does, past the gate.
    ///
    /// # Errors
    ///
    /// Those of [`AllocatorRef::allocate`].
    fn allocate_ungated(&self, request: &Request) -> Result<Block>;

    /// [`AllocatorRef::add_observer`] for an observer that is in another list too. One [of an
    /// adaptor](SharedObserver::of_adaptor) replaces the same one without that limit. It runs no code of the
    /// observer until the result is dropped.
    fn add_shared_observer(&self, observer: &SharedObserver) -> RegionDelivery;

    /// Sets whether an observer in the list receives events of blocks, whatever [`Observer::watches_blocks`]
    /// said. Returns `None` if it is not in the list. It runs no code of the allocator, and none of the
    /// observer until the result is dropped.
    fn set_watches_blocks(&self, observer: &Arc<dyn Observer>, watches: bool) -> Option<RegionDelivery>;

    /// Returns the observers as the list holds them.
    fn shared_observers(&self) -> Vec<SharedObserver>;
}

impl<A: ?Sized + Allocator> ContextHandle for AllocatorRef<A> {
    #[inline]
    fn context_number(&self) -> u64 {
        self.cell().link.context.load(Ordering::Relaxed)
    }

    fn set_context_number(&self, context: u64) {
        self.cell().link.context.store(context, Ordering::Relaxed);
    }

    fn set_gate(&self, gate: &AllocatorRef) {
        let cell = self.cell();
        let mut place = cell.link.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|gate| !gate.is_destroyed()) {
            return;
        }
        *place = Some(gate.downgrade());
        // Relaxed: a request on another thread meanwhile may pass.
        cell.head.closed.fetch_or(GATED, Ordering::Relaxed);
    }

    #[inline]
    fn allocate_ungated(&self, request: &Request) -> Result<Block> {
        match self.head().take_cached_ungated(request) {
            Some(mut raw) => {
                raw.set_owner(self.owner());
                Ok(Block::new(raw))
            }
            None => self.allocate_ungated_slow(request),
        }
    }

    fn add_shared_observer(&self, observer: &SharedObserver) -> RegionDelivery {
        let cell = self.cell();
        // An adaptor's replaces the other.
        let stays = |known: &Watch| observer.watches_regions() || !known.observer.watches_regions();
        let is_known = |now: &WatchList| now.find(observer).is_some_and(stays);
        // Before, because an engine records its regions for a watch, which receives them if it is added.
        if cell.watches.with(|watches| is_known(watches)).unwrap_or(false) {
            return RegionDelivery::default();
        }
        let regions = Arc::new(RegionWatch::new(observer.clone(), cell.allocator.name()));
        let watch = Watch { observer: observer.clone(), regions: Arc::clone(&regions) };
        if observer.watches_regions() {
            cell.allocator.watch_regions(&regions);
        }
        let (mut former, mut replaced) = (Vec::new(), None);
        let added = cell.change_watches(&mut former, |now| {
            if now.is_some_and(&is_known) {
                return None;
            }
            replaced = now.and_then(|now| now.find(observer)).map(|known| Arc::clone(&known.regions));
            let now = now.map_or(&[][..], WatchList::watches).iter();
            let others = now.filter(|known| !Arc::ptr_eq(&known.observer, observer));
            Some(others.chain([&watch]).cloned().collect())
        });
        if !added {
            // Another thread added it meanwhile.
            regions.cancel();
            replaced = None;
        }
        replaced.iter().for_each(|watch: &Arc<RegionWatch>| watch.end());
        RegionDelivery::of([regions].into_iter().chain(replaced).collect(), former)
    }

    fn set_watches_blocks(&self, observer: &Arc<dyn Observer>, watches: bool) -> Option<RegionDelivery> {
        let mut former = Vec::new();
        let is_set = self.cell().change_watches(&mut former, |now| {
            let mut all = now?.watches().to_vec();
            let watch = all.iter_mut().find(|watch| Arc::ptr_eq(&watch.observer, observer))?;
            watch.observer.set_watches_blocks(watches);
            Some(all)
        });
        is_set.then(|| RegionDelivery::of(Vec::new(), former))
    }

    fn shared_observers(&self) -> Vec<SharedObserver> {
        let watches = self.cell().watches.cloned();
        let watches = watches.iter().flat_map(|watches| watches.watches());
        watches.map(|watch| watch.observer.clone()).collect()
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
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
