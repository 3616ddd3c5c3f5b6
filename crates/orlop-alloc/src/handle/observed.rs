//! What a cell reports to the observers of its allocator, and the list of them.
//!
//! The rules of access to the cell are in `cell`.

use super::cell::{AllocatorCell, CellHead, SLOW};
use crate::observer::{Event, Watch, WatchList};
use crate::{Allocator, Error, LookupResult, RawBlock, Refusal, Request};
use orlop_sync::{OwnerState, UnreadValues};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<A: ?Sized + Allocator> AllocatorCell<A> {
    /// Replaces the list of watches by what `change` returns for the current one, and opens or closes the
    /// fast path accordingly. Returns `false` if `change` returned `None`: nothing is changed then. It may be
    /// called several times. Former lists are added to `former`, to be dropped with no lock held.
    pub(super) fn change_watches(
        &self,
        former: &mut Vec<UnreadValues<Arc<WatchList>>>,
        mut change: impl FnMut(Option<&WatchList>) -> Option<Vec<Watch>>,
    ) -> bool {
        loop {
            // The current list is read until it is replaced: by its address the cell knows it again.
            let mut replace = |current: Option<&Arc<WatchList>>| {
                let Some(next) = change(current.map(|current| &**current)) else { return Some(false) };
                former.push(self.replace_watches(current, next)?);
                Some(true)
            };
            let is_changed = match self.watches.with(|current| replace(Some(current))) {
                Some(is_changed) => is_changed,
                None => replace(None),
            };
            // Another thread may be reading the list at this moment. One that runs observers meanwhile
            // releases it later.
            former.push(self.watches.settle());
            if let Some(is_changed) = is_changed {
                return is_changed;
            }
        }
    }

    /// Replaces this list of watches, and returns former ones, or `None` if it is not the current one.
    fn replace_watches(
        &self,
        current: Option<&Arc<WatchList>>,
        next: Vec<Watch>,
    ) -> Option<UnreadValues<Arc<WatchList>>> {
        let next = WatchList::new(next);
        let is_open = !self.head.completes && !next.as_ref().is_some_and(|next| next.watches_blocks());
        let replaced = self.watches.set_if(next, |now| {
            let is_current = now.map(Arc::as_ptr) == current.map(Arc::as_ptr);
            if is_current {
                // Relaxed: an allocation on another thread meanwhile may be observed or not.
                if is_open {
                    self.head.closed.fetch_and(!SLOW, Ordering::Relaxed);
                } else {
                    self.head.closed.fetch_or(SLOW, Ordering::Relaxed);
                }
            }
            is_current
        });
        replaced.ok()
    }

    /// Delivers the region events of the last call, for calls that are not about one block.
    pub(super) fn deliver_regions(&self) {
        if let Some(watches) = self.watches.cloned() {
            watches.deliver();
        }
    }

    /// Reports an allocated block to the observers. The list is borrowed while they run, which costs no
    /// reference count; if one of them removes an observer, the former list is dropped afterwards.
    #[cold]
    pub(super) fn notify_allocated(&self, block: &RawBlock) {
        self.watches.with(|watches| notify_allocated(watches, block));
        self.watches.release_replaced();
    }

    #[cold]
    pub(super) fn fail(&self, request: &Request, error: Error) -> Error {
        let error = self.complete_report(error);
        if let Some(watches) = self.watches.cloned() {
            let allocator = watches.allocator();
            watches.observe(&Event::RequestFailed { request, error: &error, allocator });
        }
        error
    }

    /// Reports a block as freed. The list is borrowed as in `notify_allocated`, and released before the
    /// engine gets the block: from then on the cell may be destroyed.
    #[cold]
    pub(super) fn notify_freed(&self, block: &RawBlock) {
        self.watches.with(|watches| {
            watches.observe_block(&Event::Freed { block, allocator: watches.allocator() });
        });
        self.watches.release_replaced();
    }

    /// Frees a block that was reported as freed.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[cold]
    pub(super) unsafe fn give_observed(
        this: NonNull<Self>,
        raw: RawBlock,
        refused: &mut Option<Error>,
    ) -> OwnerState {
        // SAFETY: guaranteed by the caller.
        let left = unsafe { CellHead::give_to_engine(this.cast(), raw) };
        match left {
            // The cell may be destroyed by now. A block that is cached changes no region.
            None => OwnerState::InUse,
            // SAFETY: guaranteed by the caller; `give_cached` returned the block unchanged.
            Some(raw) => unsafe { Self::give_and_deliver(this, raw, refused) },
        }
    }

    /// Frees a block that was reported as freed. Then reports what that did to regions, and a refusal.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    unsafe fn give_and_deliver(
        this: NonNull<Self>,
        raw: RawBlock,
        refused: &mut Option<Error>,
    ) -> OwnerState {
        // Cloned, because the cell may be destroyed before the events are delivered. SAFETY: the block is not
        // counted out yet (guaranteed by the caller).
        let watches = unsafe { this.as_ref() }.watches.cloned();
        let address = raw.address();
        let found =
            LookupResult { requested: raw.requested, granted: raw.granted, id: raw.id, kind: raw.kind };
        // SAFETY: guaranteed by the caller.
        let state = unsafe { Self::give_unobserved(this, raw, refused) };
        if let Some(watches) = watches {
            watches.deliver();
            if let Some(error) = refused {
                let (block, allocator) = (Some(&found), watches.allocator());
                watches.observe(&Event::FreeRefused { error, address, block, allocator });
            }
        }
        state
    }

    /// Completes an out-of-memory report with the figures of the counters.
    #[cold]
    pub(super) fn complete_report(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(report) = &mut error {
            if report.by_kind.is_empty() {
                report.fill(&self.totals());
            }
            // The report of a budget has tags of one kind, if there are any.
            if report.by_tag.is_empty() && report.refusal != Refusal::Budget {
                report.set_tags(self.allocator.tag_uses());
            }
            if report.device_memory.is_none() && report.refusal != Refusal::Budget {
                report.device_memory = self.allocator.device_memory();
            }
            if let Some(watches) = self.watches.cloned() {
                // Regions that were given back for the request come first.
                watches.deliver();
                watches.observe(&Event::OutOfMemory { report });
            }
        }
        error
    }
}

/// Reports an allocated block to the observers.
#[cold]
pub(super) fn notify_allocated(watches: &WatchList, block: &RawBlock) {
    // The block's region comes first.
    watches.deliver();
    watches.observe_block(&Event::Allocated { block, allocator: watches.allocator() });
}
