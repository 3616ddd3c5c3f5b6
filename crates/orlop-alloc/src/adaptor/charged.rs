//! [`Charged`]: charges what passes through to accounts that several allocators may share.

use crate::{
    Allocator, AllocatorRef, Error, LookupResult, OutOfMemory, RawBlock, Refusal, Request, Result, forward,
};
use orlop_core::{Alignment, MemoryKind};
use orlop_host::shield::{report, shielded};
use std::fmt::Debug;
use std::ptr::NonNull;

/// Accounts of live bytes by kind, each with a hard bound and possibly a soft one.
///
/// Panics are traced and end at the call: one of [`Charge::charge`] refuses the request.
pub trait Charge: Debug + Send + Sync + 'static {
    /// Charges `bytes`. Returns the bytes by which the soft bound is exceeded then, or `None`, with nothing
    /// charged, if the hard one would be.
    fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64>;

    /// Discharges `bytes`.
    fn discharge(&self, kind: MemoryKind, bytes: u64);

    /// Replaces `charged` bytes with `needed` bytes.
    fn correct(&self, kind: MemoryKind, charged: u64, needed: u64);

    /// Returns the error of a request that needs `bytes` bytes and was refused, and reports it: `upstream`,
    /// and so its observers, did not get the request, or got a block of it that went back.
    fn refuse(&self, upstream: &AllocatorRef, request: &Request, bytes: u64) -> Error;

    /// Is called after a request that exceeded the soft bound by `bytes`.
    fn exceeded(&self, request: &Request, bytes: u64);
}

/// Charges the granted bytes of live blocks to a [`Charge`]. Put it behind a handle that
/// [stands for](AllocatorRef::standing_for) its upstream, so that a block is not counted twice.
#[derive(Debug)]
pub struct Charged<C> {
    upstream: AllocatorRef,
    accounts: Shielded<C>,
}

/// Accounts whose panics are contained: unwinding would lose a block, or leave an account charged.
#[derive(Debug)]
struct Shielded<C>(C);

impl<C: Charge> Shielded<C> {
    fn call<R>(&self, call: impl FnOnce(&C) -> R) -> Option<R> {
        let result = shielded(|| call(&self.0));
        if result.is_none() {
            report(|| tracing::error!("the accounts of an allocator panicked"));
        }
        result
    }

    fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        self.call(|accounts| accounts.charge(kind, bytes)).flatten()
    }

    fn discharge(&self, kind: MemoryKind, bytes: u64) {
        self.call(|accounts| accounts.discharge(kind, bytes));
    }

    fn correct(&self, kind: MemoryKind, charged: u64, needed: u64) {
        self.call(|accounts| accounts.correct(kind, charged, needed));
    }

    fn exceeded(&self, request: &Request, bytes: u64) {
        self.call(|accounts| accounts.exceeded(request, bytes));
    }
}

/// A charge for a request that is not served yet, and may fail, also by a panic of its allocator.
struct DischargeOnDrop<'a, C: Charge> {
    accounts: &'a Shielded<C>,
    kind: MemoryKind,
    bytes: u64,
}

impl<C: Charge> Drop for DischargeOnDrop<'_, C> {
    fn drop(&mut self) {
        self.accounts.discharge(self.kind, self.bytes);
    }
}

impl<C: Charge> Charged<C> {
    /// Creates an adaptor over `upstream` that charges `accounts`.
    pub fn new(upstream: AllocatorRef, accounts: C) -> Self {
        Self { upstream, accounts: Shielded(accounts) }
    }

    fn refuse(&self, request: &Request, bytes: u64) -> Error {
        let refused = self.accounts.call(|accounts| accounts.refuse(&self.upstream, request, bytes));
        refused.unwrap_or_else(|| {
            let upstream = &self.upstream;
            OutOfMemory::new(Refusal::Budget, upstream.name(), upstream.device(), request).into()
        })
    }

    /// Returns the bytes to charge before a block of `granted` bytes grows to `bytes`, rounded up as engines
    /// round; `None` if that overflows.
    #[must_use]
    pub fn growth(granted: usize, bytes: usize) -> Option<u64> {
        let rounded = Alignment::PLANNED.round_up(bytes).ok()?;
        Some(rounded.saturating_sub(granted) as u64)
    }
}

// SAFETY: blocks are the upstream's, unchanged; they are only counted.
unsafe impl<C: Charge> Allocator for Charged<C> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // The requested bytes are charged before the allocation, so that two threads cannot exceed the bound
        // together, and the rounding after it.
        let requested = request.bytes as u64;
        if self.accounts.charge(request.kind, requested).is_none() {
            return Err(self.refuse(request, requested));
        }
        let charged = DischargeOnDrop { accounts: &self.accounts, kind: request.kind, bytes: requested };
        let block = Allocator::allocate(&self.upstream, request)?;
        let rounding = (block.granted as u64).saturating_sub(requested);
        let Some(over) = self.accounts.charge(request.kind, rounding) else {
            drop(charged);
            let granted = block.granted as u64;
            // SAFETY: the block was just allocated from the upstream, and no user has it.
            unsafe { self.upstream.deallocate(block) }?;
            return Err(self.refuse(request, granted));
        };
        std::mem::forget(charged);
        if over > 0 {
            self.accounts.exceeded(request, over);
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (kind, bytes) = (block.kind, block.granted as u64);
        // SAFETY: guaranteed by the caller.
        unsafe { self.upstream.deallocate(block) }?;
        self.accounts.discharge(kind, bytes);
        Ok(())
    }

    /// Charges the difference only. If the engine rounds up further than expected, that is charged too.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let (kind, granted) = (block.kind, block.granted);
        let Some(more) = Self::growth(granted, bytes) else { return false };
        if self.accounts.charge(kind, more).is_none() {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        let grown = unsafe { Allocator::grow_in_place(&self.upstream, block, bytes) };
        self.accounts.correct(kind, more, block.granted.saturating_sub(granted) as u64);
        grown
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: guaranteed by the caller.
        let found = unsafe { self.upstream.deallocate_raw(ptr, requested) }?;
        self.accounts.discharge(found.kind, found.granted as u64);
        Ok(found)
    }

    fn reset_peak(&self) {
        self.upstream.reset_peaks();
    }

    forward!(upstream; except deallocate, grow_in_place, reset_peak, deallocate_raw);
}
