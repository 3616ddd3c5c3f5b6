//! Allocators that were passed for some requests, such as an arena: counted, and bounded by the budgets.
//!
//! A context learns of one when memory is first asked of it through [`Context::allocate_from`], and keeps a weak handle: it
//! counts what the allocator holds as long as that is there, and keeps it no longer. What counts is all that the allocator
//! has handed out, as with those that are registered; two contexts that were passed the same one count it both.
//!
//! One that is or was registered here after budgets were set has a gate, which charges it also when it is passed: figures of its
//! own would count again what lives of what the gate handed out.
//!
//! Budgets need no gate before any other, and no charge for each block: what such allocators hold is read from their own figures
//! when a request is charged ([`Accounts`](super::budget::Accounts)). While one is asked the request itself is charged, so
//! that two threads cannot pass a bound together.

use super::budget::{Accounts, growth};
use super::routes::DeviceRoutes;
use super::{Context, LadderStep};
use crate::handle::WeakAllocator;
use crate::observer::deliver_all;
use crate::{Allocator as _, AllocatorRef, Block, Error, MemoryBlock, Refusal, Request, Result};
use orlop_core::MemoryKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The allocators that were passed for one device.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Whether there ever was one.
    any: AtomicBool,
    list: Mutex<Vec<Known>>,
}

/// An allocator that was passed.
#[derive(Debug)]
struct Known {
    allocator: WeakAllocator,
    /// Whose blocks it hands out, if that one was passed too: they are charged there.
    over: Option<WeakAllocator>,
}

impl Passed {
    fn list(&self) -> MutexGuard<'_, Vec<Known>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an allocator that is not there, and forgets those that are gone. Gives handles that are to be dropped with no
    /// lock held: any of them may be the last by then.
    #[must_use = "to be dropped with no lock held"]
    fn note(&self, allocator: &AllocatorRef) -> Vec<AllocatorRef> {
        let mut list = self.list();
        list.retain(|known| !known.allocator.is_gone());
        if list.iter().any(|known| known.allocator.is_of(allocator)) {
            return Vec::new();
        }
        let new = allocator.downgrade();
        for known in list.iter_mut().filter(|known| known.allocator.is_over(allocator)) {
            known.over.get_or_insert_with(|| new.clone());
        }
        let others: Vec<_> = list.iter().filter_map(|known| known.allocator.upgrade()).collect();
        let over = others.iter().find(|&other| allocator.is_over(other)).map(AllocatorRef::downgrade);
        list.push(Known { allocator: new, over });
        // Release: whoever sees this looks at the list, behind its lock; relaxed would do.
        self.any.store(true, Ordering::Release);
        others
    }

    /// Takes out an allocator that is counted otherwise from now on.
    pub(super) fn forget(&self, allocator: &AllocatorRef) {
        let mut list = self.list();
        list.retain(|known| !known.allocator.is_of(allocator));
        for known in &mut *list {
            known.over.take_if(|over| over.is_of(allocator));
        }
    }

    /// All that may still be there.
    pub(super) fn all(&self) -> Vec<WeakAllocator> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.list().iter().map(|known| known.allocator.clone()).collect()
    }

    /// Live bytes by kind.
    pub(super) fn live(&self) -> [u64; MemoryKind::COUNT] {
        let mut live = [0u64; MemoryKind::COUNT];
        if self.any.load(Ordering::Acquire) {
            let list = self.list();
            let charged = list.iter().filter(|known| known.over.is_none());
            for totals in charged.filter_map(|known| known.allocator.totals()) {
                for (sum, account) in live.iter_mut().zip(&totals.kinds) {
                    *sum = sum.saturating_add(account.live_bytes);
                }
            }
        }
        live
    }
}

impl Context {
    /// Gets a block from `allocator`, such as an arena, on its device, instead of from the one that serves the request's
    /// kind here. What it holds counts in [`Context::stats`] and [`Context::memory_map`] from now on, as long as it is
    /// there; the context's observer is told of it, unless it has one of its own; and the budgets of the context hold.
    ///
    /// Budgets read what it holds from its own figures. An allocator
    /// [without statistics](AllocatorRef::with_statistics) has none: each request is bounded, but what lives of it counts
    /// nothing. [Register](Context::register) such an allocator if it is to count against budgets.
    ///
    /// The context does not keep the allocator alive.
    ///
    /// # Errors
    ///
    /// What the allocator says; [`Error::OutOfMemory`] with [`Refusal::Budget`] if a budget would be passed, also after
    /// callbacks and loans.
    #[inline]
    pub fn allocate_from(&self, allocator: &AllocatorRef, request: &Request) -> Result<Block> {
        if !allocator.is_noted_by(self.inner.number) {
            self.note_passed(allocator);
        }
        if !self.inner.has_budgets.load(Ordering::Relaxed) {
            return allocator.allocate(request);
        }
        self.allocate_in_budget(allocator, request)
    }

    /// Makes a block larger without moving it, so that it has at least `bytes`; whether that could be. A budget is charged
    /// with what is more, and refuses. Nothing is tried to make room: who cannot grow a block in place asks for another.
    ///
    /// `false` if the block has other owners.
    #[must_use = "if not, the block is as it was"]
    pub fn grow_in_place(&self, block: &mut MemoryBlock, bytes: usize) -> bool {
        if block.requested >= bytes {
            return true;
        }
        let (kind, granted) = (block.kind, block.granted);
        let routes = self.inner.routes.get(block.device);
        // What comes from a gate is charged there.
        let routes = routes.as_ref().filter(|routes| !routes.is_from_gate(block));
        let Some(accounts) = routes.and_then(|routes| routes.accounts()) else {
            return block.with_block(|block| block.grow_in_place(bytes)).unwrap_or(false);
        };
        let Some(more) = growth(granted, bytes) else { return false };
        if accounts.charge(kind, more).is_none() {
            return false;
        }
        let grown = block.with_block(|block| block.grow_in_place(bytes)).unwrap_or(false);
        // From here on the allocator's own figures have it.
        accounts.discharge(kind, more);
        grown
    }

    #[cold]
    fn note_passed(&self, allocator: &AllocatorRef) {
        let changing = self.changing();
        let routes = self.inner.routes.get_or_new(allocator.device());
        let (mut watches, mut others) = (Vec::new(), Vec::new());
        // Those that serve here are counted as such, and what stands over a budget's gate is too.
        if routes.registration_of(allocator).is_none() && !routes.is_over_gate(allocator) {
            others = routes.passed.note(allocator);
            if let Some(observer) = self.inner.observer.cloned() {
                watches = allocator.put_first_observer(observer);
            }
        }
        allocator.set_noted_by(self.inner.number);
        drop(changing);
        drop(others);
        deliver_all(&watches);
    }

    #[cold]
    fn allocate_in_budget(&self, allocator: &AllocatorRef, request: &Request) -> Result<Block> {
        let routes = self.inner.routes.get_or_new(allocator.device());
        let Some(accounts) = routes.accounts() else { return allocator.allocate(request) };
        // Behind a gate, or a gate itself.
        let serving = routes.registration_of(allocator);
        let allocate = || match serving {
            Some(serving) => serving.allocate(request),
            None if routes.is_over_gate(allocator) => allocator.allocate(request),
            None => self.allocate_charged(&routes, accounts, allocator, request),
        };
        match allocate() {
            Err(Error::OutOfMemory(report)) if request.retry && report.refusal == Refusal::Budget => {
                self.climb(&routes, allocator, request, report, &allocate)
            }
            result => result,
        }
    }

    fn allocate_charged(
        &self,
        routes: &DeviceRoutes,
        accounts: &Accounts,
        allocator: &AllocatorRef,
        request: &Request,
    ) -> Result<Block> {
        let bytes = request.bytes as u64;
        if accounts.charge(request.kind, bytes).is_none() {
            return Err(accounts.refuse(allocator, request, bytes));
        }
        let result = allocator.allocate(request);
        // From here on the allocator's own figures have it.
        accounts.discharge(request.kind, bytes);
        let block = result?;
        let granted = block.capacity() as u64;
        if granted > bytes && accounts.is_over(request.kind) {
            drop(block);
            return Err(accounts.refuse(allocator, request, granted));
        }
        let over = accounts.over_soft(request.kind);
        if over > 0 {
            let freed = self.inner.relieve(routes, allocator.device(), request.kind, request.tag, over);
            self.inner.note(LadderStep::Callbacks, request.kind, freed);
        }
        Ok(block)
    }
}
