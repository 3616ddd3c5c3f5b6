//! Allocation ids: unique in the process, drawn without a shared counter.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies one allocation. The id stays unique in the process when the address is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(u64);

/// The binary logarithm of the number of ids in a range. No thread ever draws that many.
const RANGE_LOG2: u32 = 40;

impl AllocationId {
    /// The id of blocks that are not counted: empty ones, and foreign memory that no context has
    /// adopted.
    pub const NONE: Self = Self(0);

    /// Returns a new id. Each thread draws from a range of its own, so there is no shared counter on this
    /// path.
    #[inline]
    #[must_use]
    pub fn next() -> Self {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        let id = match NEXT.get() {
            0 => Self::new_range(),
            id => id,
        };
        NEXT.set(id + 1);
        Self(id)
    }

    /// Returns the id `number` of a range from [`AllocationId::new_range`].
    pub(crate) const fn of_range(number: u64) -> Self {
        Self(number)
    }

    /// Returns the first id of a new range, which the caller draws from in order. There are 2^24 ranges; then
    /// they repeat.
    #[cold]
    pub(crate) fn new_range() -> u64 {
        static RANGES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: ranges only need to differ. Plus one, so that the first id of the first range is not
        // `NONE`.
        (RANGES.fetch_add(1, Ordering::Relaxed) << RANGE_LOG2) + 1
    }

    /// Returns the id as a number: zero for [`AllocationId::NONE`].
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
