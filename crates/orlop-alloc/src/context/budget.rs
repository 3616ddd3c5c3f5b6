//! Budgets by kind on one device, and the loans between them (X4).
//!
//! A *hard* budget bounds the live bytes of a kind. A *soft* one is a wish: passing it asks the kind's
//! callbacks to free the overshoot, and never fails. A kind that needs more than its hard budget may borrow
//! what others have unused; loans are repaid as soon as the borrower's bytes allow. A kind without a hard
//! budget is unbounded and lends nothing: it has nothing set aside.
//!
//! # Invariants, under the lock
//!
//! 1. for a kind with a hard budget, `live <= hard + borrowed - lent`, unless the budget was lowered below
//!    what was live;
//! 2. the sum of all `borrowed` is the sum of all `lent`.

use super::reclaim::SoftHook;
use crate::{
    Allocator, AllocatorRef, DeviceMemory, Error, Found, OutOfMemory, RawBlock, Refusal, RegionWatch,
    Request, Result, Semantics, Usage,
};
use orlop_core::{Device, MemoryKind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bounds for one kind on one device, in live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Never more than this, loans aside.
    pub hard: Option<u64>,
    /// Preferably not more than this.
    pub soft: Option<u64>,
    /// Whether the kind may borrow from others, and others from it.
    pub borrows: bool,
}

impl Budget {
    /// A hard bound, with borrowing.
    #[must_use]
    pub const fn hard(bytes: u64) -> Self {
        Self { hard: Some(bytes), soft: None, borrows: true }
    }

    /// With a soft bound as well.
    #[must_use]
    pub const fn soft(mut self, bytes: u64) -> Self {
        self.soft = Some(bytes);
        self
    }

    /// Without borrowing or lending.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.borrows = false;
        self
    }
}

/// Where a kind stands against its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The bounds.
    pub budget: Budget,
    /// Bytes charged now.
    pub live: u64,
    /// Budget taken from others.
    pub borrowed: u64,
    /// Budget given to others.
    pub lent: u64,
}

impl Standing {
    fn room(&self) -> u64 {
        match self.budget.hard {
            Some(hard) => {
                hard.saturating_add(self.borrowed).saturating_sub(self.lent.saturating_add(self.live))
            }
            None => u64::MAX,
        }
    }

    fn lends(&self) -> bool {
        self.budget.borrows && self.budget.hard.is_some()
    }
}

/// The accounts of one device.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    kinds: [Standing; MemoryKind::COUNT],
    /// `loans[borrower][lender]`.
    loans: [[u64; MemoryKind::COUNT]; MemoryKind::COUNT],
}

impl Accounts {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, kind: MemoryKind, budget: Budget) {
        self.books().kinds[kind.index()].budget = budget;
    }

    pub(super) fn standing(&self, kind: MemoryKind) -> Standing {
        self.books().kinds[kind.index()]
    }

    /// Charges `bytes`; how far the soft budget is passed then, or `None` if the hard one would be.
    fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        let mut books = self.books();
        let standing = &mut books.kinds[kind.index()];
        if bytes > standing.room() {
            return None;
        }
        standing.live = standing.live.checked_add(bytes)?;
        Some(standing.budget.soft.map_or(0, |soft| standing.live.saturating_sub(soft)))
    }

    /// Takes `bytes` off, and repays loans with what that frees.
    fn discharge(&self, kind: MemoryKind, bytes: u64) {
        let mut books = self.books();
        let borrower = kind.index();
        let standing = &mut books.kinds[borrower];
        standing.live = standing.live.saturating_sub(bytes);
        if standing.borrowed == 0 {
            return;
        }
        for lender in 0..MemoryKind::COUNT {
            let back = books.loans[borrower][lender].min(books.kinds[borrower].room());
            books.loans[borrower][lender] -= back;
            books.kinds[borrower].borrowed -= back;
            books.kinds[lender].lent -= back;
        }
    }

    /// Borrows what is missing for `bytes`, all or nothing. The bytes borrowed.
    pub(super) fn borrow(&self, kind: MemoryKind, bytes: u64) -> u64 {
        let mut books = self.books();
        let borrower = kind.index();
        if !books.kinds[borrower].budget.borrows {
            return 0;
        }
        let missing = bytes.saturating_sub(books.kinds[borrower].room());
        let lenders = || (0..MemoryKind::COUNT).filter(|&other| other != borrower);
        let spare = |standing: &Standing| if standing.lends() { standing.room() } else { 0 };
        let total = lenders().map(|other| spare(&books.kinds[other])).fold(0, u64::saturating_add);
        if missing == 0 || total < missing {
            return 0;
        }
        let mut left = missing;
        for lender in lenders() {
            let loan = left.min(spare(&books.kinds[lender]));
            books.loans[borrower][lender] += loan;
            books.kinds[lender].lent += loan;
            books.kinds[borrower].borrowed += loan;
            left -= loan;
        }
        missing
    }
}

/// Stands before an allocator and charges one kind's account for what passes.
#[derive(Debug)]
pub(super) struct Gate {
    upstream: AllocatorRef,
    accounts: Arc<Accounts>,
    /// Told how far the soft budget was passed.
    over_soft: SoftHook,
}

impl Gate {
    pub(super) fn new(upstream: AllocatorRef, accounts: Arc<Accounts>, over_soft: SoftHook) -> Self {
        Self { upstream, accounts, over_soft }
    }

    #[cold]
    fn refuse(&self, request: &Request, bytes: u64) -> Error {
        let standing = self.accounts.standing(request.kind);
        let mut report = OutOfMemory::new(Refusal::Budget, self.name(), self.device(), request);
        report.rounded = usize::try_from(bytes).unwrap_or(usize::MAX);
        report.live = standing.live;
        report.limit = standing
            .budget
            .hard
            .map(|hard| hard.saturating_add(standing.borrowed).saturating_sub(standing.lent));
        report.by_kind = MemoryKind::ALL
            .into_iter()
            .map(|kind| (kind, self.accounts.standing(kind).live))
            .filter(|&(_, live)| live > 0)
            .collect();
        report.by_kind.sort_by_key(|&(_, live)| std::cmp::Reverse(live));
        report.reserved = self.upstream.usage().reserved;
        report.into()
    }
}

// SAFETY: blocks are the upstream's, unchanged; the gate only counts them.
unsafe impl Allocator for Gate {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // The request is charged before it is made, so that two threads cannot pass the bound together, and
        // corrected to what was granted after.
        let asked = request.bytes as u64;
        if self.accounts.charge(request.kind, asked).is_none() {
            return Err(self.refuse(request, asked));
        }
        let block = match Allocator::allocate(&self.upstream, request) {
            Ok(block) => block,
            Err(error) => {
                self.accounts.discharge(request.kind, asked);
                return Err(error);
            }
        };
        let rounding = (block.granted as u64).saturating_sub(asked);
        match self.accounts.charge(request.kind, rounding) {
            Some(0) => Ok(block),
            Some(over) => {
                self.over_soft.call(request.kind, over);
                Ok(block)
            }
            None => {
                self.accounts.discharge(request.kind, asked);
                let error = self.refuse(request, block.granted as u64);
                // SAFETY: just allocated from there, and nobody else knows it.
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

    fn device(&self) -> Device {
        self.upstream.device()
    }

    fn name(&self) -> &str {
        self.upstream.name()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.upstream.device_memory()
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn reset_peak(&self) {
        self.upstream.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        self.upstream.semantics()
    }

    fn trim(&self, target: u64) -> u64 {
        self.upstream.trim(target)
    }

    fn find(&self, address: usize) -> Option<Found> {
        self.upstream.find(address)
    }

    fn tracks_sizes(&self) -> bool {
        self.upstream.tracks_sizes()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise; blocks are the upstream's, unchanged.
        unsafe { self.upstream.allocated_size_slow(ptr) }
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<Found> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.upstream.deallocate_raw(ptr, requested) }?;
        self.accounts.discharge(found.kind, found.granted as u64);
        Ok(found)
    }

    fn has_raw_deleter(&self) -> bool {
        self.upstream.has_raw_deleter()
    }

    fn opaque_handles(&self) -> bool {
        self.upstream.opaque_handles()
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.upstream.set_safe_frontier(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.upstream.describe(report);
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.upstream.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.upstream.verify()
    }
}
