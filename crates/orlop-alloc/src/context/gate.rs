//! The budget gate: an allocator in front of a registered one that charges what passes to the budgets of the
//! device.

use super::budget::{BudgetAccounts, growth};
use super::reclaim::SoftHook;
use crate::{Allocator, AllocatorRef, Error, LookupResult, RawBlock, Request, Result, forward};
use std::ptr::NonNull;
use std::sync::Arc;

/// An allocator in front of another one that charges what passes through to the budget of its kind.
#[derive(Debug)]
pub(super) struct BudgetGate {
    upstream: AllocatorRef,
    accounts: Arc<BudgetAccounts>,
    /// Called when the soft budget is exceeded.
    over_soft: SoftHook,
}

impl BudgetGate {
    pub(super) fn new(upstream: AllocatorRef, accounts: Arc<BudgetAccounts>, over_soft: SoftHook) -> Self {
        Self { upstream, accounts, over_soft }
    }

    fn refuse(&self, request: &Request, bytes: u64) -> Error {
        self.accounts.refuse(&self.upstream, request, bytes)
    }
}

// SAFETY: blocks are the upstream's, unchanged; the gate only counts them.
unsafe impl Allocator for BudgetGate {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // The requested bytes are charged before the allocation, so that two threads cannot exceed the bound
        // together, and the rounding after it.
        let requested = request.bytes as u64;
        if self.accounts.charge(request.kind, requested).is_none() {
            return Err(self.refuse(request, requested));
        }
        let block = match Allocator::allocate(&self.upstream, request) {
            Ok(block) => block,
            Err(error) => {
                self.accounts.discharge(request.kind, requested);
                return Err(error);
            }
        };
        let rounding = (block.granted as u64).saturating_sub(requested);
        match self.accounts.charge(request.kind, rounding) {
            Some(0) => Ok(block),
            Some(over) => {
                self.over_soft.call(request, over);
                Ok(block)
            }
            None => {
                self.accounts.discharge(request.kind, requested);
                let error = self.refuse(request, block.granted as u64);
                // SAFETY: the block was just allocated from the upstream, and no user has it.
                unsafe { self.upstream.deallocate(block) }?;
                Err(error)
            }
        }
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (kind, bytes) = (block.kind, block.granted as u64);
        // SAFETY: the caller's promise.
        unsafe { self.upstream.deallocate(block) }?;
        self.accounts.discharge(kind, bytes);
        Ok(())
    }

    /// Charges the difference only. If the engine rounds up further than expected, that is charged too.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let (kind, granted) = (block.kind, block.granted);
        let Some(more) = growth(granted, bytes) else { return false };
        if self.accounts.charge(kind, more).is_none() {
            return false;
        }
        // SAFETY: the caller's promise.
        let grown = unsafe { Allocator::grow_in_place(&self.upstream, block, bytes) };
        self.accounts.correct(kind, more, block.granted.saturating_sub(granted) as u64);
        grown
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.upstream.deallocate_raw(ptr, requested) }?;
        self.accounts.discharge(found.kind, found.granted as u64);
        Ok(found)
    }

    forward!(upstream; except deallocate, deallocate_raw, grow_in_place);
}
