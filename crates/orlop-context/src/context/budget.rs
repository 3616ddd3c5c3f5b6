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
    /// Returns the hard budget with loans.
    fn limit(&self) -> Option<u128> {
        let with_loans =
            |hard| (u128::from(hard) + u128::from(self.borrowed)).saturating_sub(self.lent.into());
        self.budget.hard.map(with_loans)
    }

    fn room(&self) -> u64 {
        self.limit().map_or(u64::MAX, |limit| clamped(limit.saturating_sub(self.live.into())))
    }

    fn is_exceeded(&self) -> bool {
        self.limit().is_some_and(|limit| u128::from(self.live) > limit)
    }

    /// Returns the bytes by which the soft budget is exceeded.
    fn over_soft(&self) -> u64 {
        self.budget.soft.map_or(0, |soft| self.live.saturating_sub(soft))
    }

    fn lends(&self) -> bool {
        self.budget.borrows && self.budget.hard.is_some()
    }
}

fn clamped(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
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
    /// Live bytes of the explicit allocators: an upper bound, exact after they were read.
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

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state with the exact live bytes of the explicit allocators.
    fn exact(&self) -> MutexGuard<'_, BudgetState> {
        self.exact_unless(|_| false)
    }

    /// Locks the state. The live bytes of the explicit allocators are an upper bound if that is enough, and
    /// else exact.
    fn exact_unless(&self, is_enough: impl FnOnce(&BudgetState) -> bool) -> MutexGuard<'_, BudgetState> {
        let mut state = self.lock();
        for (bound, allocated) in state.explicit.iter_mut().zip(self.explicit.take_allocated()) {
            *bound = bound.saturating_add(allocated);
        }
        if !is_enough(&state) {
            let before = std::mem::replace(&mut state.explicit, self.explicit.live());
            // A free in an explicit allocator is not reported here.
            if state.explicit != before {
                (0..MemoryKind::COUNT).for_each(|borrower| state.repay(borrower));
            }
        }
        state
    }

    /// Locks the state to repay loans of a kind, for which the exact live bytes are needed.
    fn exact_for_loans(&self, kind: MemoryKind) -> MutexGuard<'_, BudgetState> {
        self.exact_unless(|state| state.kinds[kind.index()].borrowed == 0)
    }

    pub(super) fn set(&self, kind: MemoryKind, budget: Budget) {
        self.lock().kinds[kind.index()].budget = budget;
    }

    pub(super) fn status(&self, kind: MemoryKind) -> BudgetStatus {
        self.exact().status(kind.index())
    }

    /// Returns the bytes by which the soft budget is exceeded.
    pub(super) fn over_soft(&self, kind: MemoryKind) -> u64 {
        let kind = kind.index();
        self.exact_unless(|state| state.status(kind).over_soft() == 0).status(kind).over_soft()
    }

    /// Returns `true` if the hard budget is exceeded.
    pub(super) fn is_exceeded(&self, kind: MemoryKind) -> bool {
        let kind = kind.index();
        self.exact_unless(|state| !state.status(kind).is_exceeded()).status(kind).is_exceeded()
    }

    /// Charges `bytes`. Returns by how much the soft budget is exceeded then, or `None` if the hard one would
    /// be.
    pub(super) fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        let kind = kind.index();
        let charged = |state: &BudgetState| {
            let status = state.status(kind);
            BudgetStatus { live: status.live.saturating_add(bytes), ..status }
        };
        let mut state =
            self.exact_unless(|state| bytes <= state.room(kind) && charged(state).over_soft() == 0);
        if bytes > state.room(kind) {
            return None;
        }
        let over_soft = charged(&state).over_soft();
        let status = &mut state.kinds[kind];
        status.live = status.live.checked_add(bytes)?;
        Some(over_soft)
    }

    /// Discharges `bytes`, and repays loans with what that frees.
    pub(super) fn discharge(&self, kind: MemoryKind, bytes: u64) {
        self.correct(kind, bytes, 0);
    }

    /// Repays the part of its loans that the kind does not use.
    pub(super) fn repay(&self, kind: MemoryKind) {
        self.exact_for_loans(kind).repay(kind.index());
    }

    /// Returns the bytes that are missing for `bytes` more.
    pub(super) fn missing(&self, kind: MemoryKind, bytes: u64) -> u64 {
        let kind = kind.index();
        bytes.saturating_sub(self.exact_unless(|state| bytes <= state.room(kind)).room(kind))
    }

    /// Replaces `charged` bytes with `needed` bytes, and repays loans with what that frees.
    pub(super) fn correct(&self, kind: MemoryKind, charged: u64, needed: u64) {
        let mut state = self.exact_for_loans(kind);
        let status = &mut state.kinds[kind.index()];
        status.live = status.live.saturating_sub(charged).saturating_add(needed);
        state.repay(kind.index());
    }

    /// Borrows what is missing for `bytes`, all or nothing. Returns the borrowed bytes.
    pub(super) fn borrow(&self, kind: MemoryKind, bytes: u64) -> u64 {
        let mut state = self.exact();
        let borrower = kind.index();
        if !state.kinds[borrower].budget.borrows {
            return 0;
        }
        let missing = bytes.saturating_sub(state.room(borrower));
        let lenders = || (0..MemoryKind::COUNT).filter(|&other| other != borrower);
        let spare = |state: &BudgetState, lender: usize| {
            let status = state.status(lender);
            // The sum of its loans is a number of bytes, too.
            if status.lends() { status.room().min(u64::MAX - status.lent) } else { 0 }
        };
        let total = lenders().map(|other| spare(&state, other)).fold(0, u64::saturating_add);
        let is_countable = state.kinds[borrower].borrowed.checked_add(missing).is_some();
        if missing == 0 || total < missing || !is_countable {
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
        let state = self.exact();
        let status = state.status(request.kind.index());
        report.live = status.live;
        report.limit = status.limit().map(clamped);
        report.lent = status.lent;
        report.set_kinds(MemoryKind::ALL.map(|kind| (kind, state.status(kind.index()).live)));
        drop(state);
        report.set_tags(allocator.tag_uses().into_iter().filter(|part| part.kind == request.kind));
        report.into()
    }
}
