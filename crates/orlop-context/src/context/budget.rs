//! Budgets by kind on one device, and loans between them.
//!
//! A *hard* budget bounds the live bytes of a kind. A *soft* one fails no request: exceeding it runs the
//! kind's callbacks to free the excess. A kind that needs more than its hard budget may borrow the unused
//! budget of others; loans are repaid as soon as the borrower's live bytes allow it. A kind without a hard
//! budget is unbounded, and lends nothing: it has no budget to lend.
//!
//! # Invariants, under the lock
//!
//! 1. For a kind with a hard budget, `live <= hard + borrowed - lent`, unless the budget was lowered below
//!    the live bytes;
//! 2. the sum of all `borrowed` is the sum of all `lent`.

use super::explicit::ExplicitAllocators;
use orlop_alloc::{AllocatorRef, Error, OutOfMemory, Refusal, Request};
use orlop_core::MemoryKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bounds of one kind on one device, in live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// The maximum, loans aside.
    pub hard: Option<u64>,
    /// The bound above which callbacks run.
    pub soft: Option<u64>,
    /// Whether the kind may borrow from others, and others from it.
    pub borrows: bool,
}

impl Budget {
    /// Returns a hard budget, with borrowing.
    #[must_use]
    pub const fn hard(bytes: u64) -> Self {
        Self { hard: Some(bytes), soft: None, borrows: true }
    }

    /// Adds a soft bound.
    #[must_use]
    pub const fn soft(mut self, bytes: u64) -> Self {
        self.soft = Some(bytes);
        self
    }

    /// Turns borrowing and lending off.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.borrows = false;
        self
    }
}

/// The use of one kind's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetStatus {
    /// The budget.
    pub budget: Budget,
    /// Live bytes that count against it: of the allocators that serve the kind, and of those passed for
    /// single requests.
    pub live: u64,
    /// Bytes of budget borrowed from other kinds.
    pub borrowed: u64,
    /// Bytes of budget lent to other kinds.
    pub lent: u64,
}

impl BudgetStatus {
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

/// The budgets of one device.
#[derive(Debug)]
pub(super) struct BudgetAccounts {
    state: Mutex<BudgetState>,
    /// Allocators whose live bytes are not charged, but read from their own statistics.
    explicit: Arc<ExplicitAllocators>,
}

#[derive(Debug, Default)]
struct BudgetState {
    /// Here `live` has the charged bytes only.
    kinds: [BudgetStatus; MemoryKind::COUNT],
    /// Live bytes of the explicit allocators, as read last.
    explicit: [u64; MemoryKind::COUNT],
    /// `loans[borrower][lender]`.
    loans: [[u64; MemoryKind::COUNT]; MemoryKind::COUNT],
}

impl BudgetState {
    /// Returns the use of a kind's budget, explicit allocators included.
    fn status(&self, kind: usize) -> BudgetStatus {
        let status = self.kinds[kind];
        BudgetStatus { live: status.live.saturating_add(self.explicit[kind]), ..status }
    }

    fn room(&self, kind: usize) -> u64 {
        self.status(kind).room()
    }

    /// Repays the part of its loans that the borrower does not use.
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

impl BudgetAccounts {
    pub(super) fn new(explicit: Arc<ExplicitAllocators>) -> Self {
        Self { state: Mutex::default(), explicit }
    }

    /// Locks the state and updates it: a free in an explicit allocator is not reported here.
    fn state(&self) -> MutexGuard<'_, BudgetState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut state.explicit, self.explicit.live());
        if state.explicit != before {
            (0..MemoryKind::COUNT).for_each(|borrower| state.repay(borrower));
        }
        state
    }

    pub(super) fn set(&self, kind: MemoryKind, budget: Budget) {
        self.state().kinds[kind.index()].budget = budget;
    }

    pub(super) fn status(&self, kind: MemoryKind) -> BudgetStatus {
        self.state().status(kind.index())
    }

    /// Returns the bytes by which the soft budget is exceeded.
    pub(super) fn over_soft(&self, kind: MemoryKind) -> u64 {
        let status = self.status(kind);
        status.budget.soft.map_or(0, |soft| status.live.saturating_sub(soft))
    }

    /// Returns `true` if the hard budget is exceeded.
    pub(super) fn is_exceeded(&self, kind: MemoryKind) -> bool {
        let status = self.status(kind);
        let bound = |hard: u64| hard.saturating_add(status.borrowed).saturating_sub(status.lent);
        status.budget.hard.is_some_and(|hard| status.live > bound(hard))
    }

    /// Charges `bytes`. Returns by how much the soft budget is exceeded then, or `None` if the hard one would
    /// be.
    pub(super) fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        let mut state = self.state();
        if bytes > state.room(kind.index()) {
            return None;
        }
        let status = &mut state.kinds[kind.index()];
        status.live = status.live.checked_add(bytes)?;
        let status = state.status(kind.index());
        Some(status.budget.soft.map_or(0, |soft| status.live.saturating_sub(soft)))
    }

    /// Discharges `bytes`, and repays loans with what that frees.
    pub(super) fn discharge(&self, kind: MemoryKind, bytes: u64) {
        let mut state = self.state();
        let status = &mut state.kinds[kind.index()];
        status.live = status.live.saturating_sub(bytes);
        state.repay(kind.index());
    }

    /// Repays the part of its loans that the kind does not use.
    pub(super) fn repay(&self, kind: MemoryKind) {
        self.state().repay(kind.index());
    }

    /// Returns the bytes that are missing for `bytes` more.
    pub(super) fn missing(&self, kind: MemoryKind, bytes: u64) -> u64 {
        bytes.saturating_sub(self.state().room(kind.index()))
    }

    /// Replaces `charged` bytes with `needed` bytes.
    pub(super) fn correct(&self, kind: MemoryKind, charged: u64, needed: u64) {
        let mut state = self.state();
        let status = &mut state.kinds[kind.index()];
        status.live = status.live.saturating_sub(charged).saturating_add(needed);
        state.repay(kind.index());
    }

    /// Borrows what is missing for `bytes`, all or nothing. Returns the borrowed bytes.
    pub(super) fn borrow(&self, kind: MemoryKind, bytes: u64) -> u64 {
        let mut state = self.state();
        let borrower = kind.index();
        if !state.kinds[borrower].budget.borrows {
            return 0;
        }
        let missing = bytes.saturating_sub(state.room(borrower));
        let lenders = || (0..MemoryKind::COUNT).filter(|&other| other != borrower);
        let spare = |state: &BudgetState, lender: usize| {
            let status = state.status(lender);
            if status.lends() { status.room() } else { 0 }
        };
        let total = lenders().map(|other| spare(&state, other)).fold(0, u64::saturating_add);
        if missing == 0 || total < missing {
            return 0;
        }
        let mut left = missing;
        for lender in lenders() {
            let loan = left.min(spare(&state, lender));
            state.loans[borrower][lender] += loan;
            state.kinds[lender].lent += loan;
            state.kinds[borrower].borrowed += loan;
            left -= loan;
        }
        missing
    }

    /// Returns the out-of-memory error of a request that needs `bytes` bytes. Its figures are the context's:
    /// the use of each kind's budget, and the live bytes of this kind by tag.
    #[cold]
    pub(super) fn refuse(&self, allocator: &AllocatorRef, request: &Request, bytes: u64) -> Error {
        let mut report = OutOfMemory::new(Refusal::Budget, allocator.name(), allocator.device(), request);
        report.rounded = usize::try_from(bytes).unwrap_or(usize::MAX);
        // The requested bytes are charged before the allocator rounds them up.
        report.rounded_is_minimum = report.rounded == request.bytes;
        let state = self.state();
        let status = state.status(request.kind.index());
        report.live = status.live;
        report.limit =
            status.budget.hard.map(|hard| hard.saturating_add(status.borrowed).saturating_sub(status.lent));
        report.lent = status.lent;
        report.set_kinds(MemoryKind::ALL.map(|kind| (kind, state.status(kind.index()).live)));
        drop(state);
        report.set_tags(allocator.tag_uses().into_iter().filter(|part| part.kind == request.kind));
        report.into()
    }
}
