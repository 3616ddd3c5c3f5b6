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

use super::explicit::Passed;
use super::reclaim::SoftHook;
use crate::{
    Allocator, AllocatorRef, DeviceMemory, Error, LookupResult, OutOfMemory, RawBlock, Refusal, RegionWatch,
    Request, Result, Semantics, TagUse, Usage,
};
use orlop_core::{Alignment, Device, MemoryKind};
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
    /// Bytes that count against it now: of the allocators that serve the kind, and of those that were passed for requests.
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
#[derive(Debug)]
pub(super) struct Accounts {
    books: Mutex<Books>,
    /// What these hold is not charged, but read from their own figures.
    passed: Arc<Passed>,
}

#[derive(Debug, Default)]
struct Books {
    /// `live` is what was charged.
    kinds: [Standing; MemoryKind::COUNT],
    /// What allocators hold that were passed, at the moment.
    passed: [u64; MemoryKind::COUNT],
    /// `loans[borrower][lender]`.
    loans: [[u64; MemoryKind::COUNT]; MemoryKind::COUNT],
}

impl Books {
    /// Where a kind stands, with what passed allocators hold of it.
    fn standing(&self, kind: usize) -> Standing {
        let standing = self.kinds[kind];
        Standing { live: standing.live.saturating_add(self.passed[kind]), ..standing }
    }

    fn room(&self, kind: usize) -> u64 {
        self.standing(kind).room()
    }

    /// Repays what the borrower can do without.
    fn repay(&mut self, borrower: usize) {
        if self.kinds[borrower].borrowed == 0 {
            return;
        }
        for lender in 0..MemoryKind::COUNT {
            let back = self.loans[borrower][lender].min(self.room(borrower));
            self.loans[borrower][lender] -= back;
            self.kinds[borrower].borrowed -= back;
            self.kinds[lender].lent -= back;
        }
    }
}

impl Accounts {
    pub(super) fn new(passed: Arc<Passed>) -> Self {
        Self { books: Mutex::default(), passed }
    }

    /// The books as they are now: nobody tells when a block goes back to an allocator that was passed.
    fn books(&self) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut books.passed, self.passed.live());
        if books.passed != before {
            (0..MemoryKind::COUNT).for_each(|borrower| books.repay(borrower));
        }
        books
    }

    pub(super) fn set(&self, kind: MemoryKind, budget: Budget) {
        self.books().kinds[kind.index()].budget = budget;
    }

    pub(super) fn standing(&self, kind: MemoryKind) -> Standing {
        self.books().standing(kind.index())
    }

    /// How far the soft budget is passed.
    pub(super) fn over_soft(&self, kind: MemoryKind) -> u64 {
        let standing = self.standing(kind);
        standing.budget.soft.map_or(0, |soft| standing.live.saturating_sub(soft))
    }

    /// Whether the hard budget is passed.
    pub(super) fn is_over(&self, kind: MemoryKind) -> bool {
        let standing = self.standing(kind);
        let bound = |hard: u64| hard.saturating_add(standing.borrowed).saturating_sub(standing.lent);
        standing.budget.hard.is_some_and(|hard| standing.live > bound(hard))
    }

    /// Charges `bytes`; how far the soft budget is passed then, or `None` if the hard one would be.
    pub(super) fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        let mut books = self.books();
        if bytes > books.room(kind.index()) {
            return None;
        }
        let standing = &mut books.kinds[kind.index()];
        standing.live = standing.live.checked_add(bytes)?;
        let standing = books.standing(kind.index());
        Some(standing.budget.soft.map_or(0, |soft| standing.live.saturating_sub(soft)))
    }

    /// Takes `bytes` off, and repays loans with what that frees.
    pub(super) fn discharge(&self, kind: MemoryKind, bytes: u64) {
        let mut books = self.books();
        let standing = &mut books.kinds[kind.index()];
        standing.live = standing.live.saturating_sub(bytes);
        books.repay(kind.index());
    }

    /// Puts what was needed in the place of what was charged.
    fn correct(&self, kind: MemoryKind, charged: u64, needed: u64) {
        let mut books = self.books();
        let standing = &mut books.kinds[kind.index()];
        standing.live = standing.live.saturating_sub(charged).saturating_add(needed);
        books.repay(kind.index());
    }

    /// Borrows what is missing for `bytes`, all or nothing. The bytes borrowed.
    pub(super) fn borrow(&self, kind: MemoryKind, bytes: u64) -> u64 {
        let mut books = self.books();
        let borrower = kind.index();
        if !books.kinds[borrower].budget.borrows {
            return 0;
        }
        let missing = bytes.saturating_sub(books.room(borrower));
        let lenders = || (0..MemoryKind::COUNT).filter(|&other| other != borrower);
        let spare = |books: &Books, lender: usize| {
            let standing = books.standing(lender);
            if standing.lends() { standing.room() } else { 0 }
        };
        let total = lenders().map(|other| spare(&books, other)).fold(0, u64::saturating_add);
        if missing == 0 || total < missing {
            return 0;
        }
        let mut left = missing;
        for lender in lenders() {
            let loan = left.min(spare(&books, lender));
            books.loans[borrower][lender] += loan;
            books.kinds[lender].lent += loan;
            books.kinds[borrower].borrowed += loan;
            left -= loan;
        }
        missing
    }

    /// The refusal of a request that would need `bytes`. All its figures are the context's: what each kind has of its
    /// budget, and who holds what of this kind.
    #[cold]
    pub(super) fn refuse(&self, allocator: &AllocatorRef, request: &Request, bytes: u64) -> Error {
        let mut report = OutOfMemory::new(Refusal::Budget, allocator.name(), allocator.device(), request);
        report.rounded = usize::try_from(bytes).unwrap_or(usize::MAX);
        let books = self.books();
        let standing = books.standing(request.kind.index());
        report.live = standing.live;
        report.limit = standing
            .budget
            .hard
            .map(|hard| hard.saturating_add(standing.borrowed).saturating_sub(standing.lent));
        report.set_kinds(MemoryKind::ALL.map(|kind| (kind, books.standing(kind.index()).live)));
        drop(books);
        report.set_tags(allocator.tag_uses().into_iter().filter(|part| part.kind == request.kind));
        report.into()
    }
}

/// What is charged before a block of so many granted bytes grows: up to the next multiple of what engines round to.
pub(super) fn growth(granted: usize, bytes: usize) -> Option<u64> {
    let rounded = Alignment::PLANNED.round_up(bytes).ok()?;
    Some(rounded.saturating_sub(granted) as u64)
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

    fn refuse(&self, request: &Request, bytes: u64) -> Error {
        self.accounts.refuse(&self.upstream, request, bytes)
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
                self.over_soft.call(request, over);
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

    /// Charges the difference only. An engine that rounds up further than was foreseen is charged for that all the same.
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

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.upstream.find(address)
    }

    fn has_tracked_sizes(&self) -> bool {
        self.upstream.has_tracked_sizes()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise; blocks are the upstream's, unchanged.
        unsafe { self.upstream.allocated_size_slow(ptr) }
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.upstream.deallocate_raw(ptr, requested) }?;
        self.accounts.discharge(found.kind, found.granted as u64);
        Ok(found)
    }

    fn has_raw_deleter(&self) -> bool {
        self.upstream.has_raw_deleter()
    }

    fn has_opaque_handles(&self) -> bool {
        self.upstream.has_opaque_handles()
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.upstream.set_safe_frontier(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.upstream.describe(report);
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        self.upstream.tag_uses()
    }

    fn is_over(&self, other: &AllocatorRef) -> bool {
        self.upstream.is_over(other)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.upstream.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.upstream.verify()
    }
}
