//! The number of an allocation: unique in the process, drawn without a shared counter.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names one allocation for the life of the process, however often its address is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(u64);

/// How many ids there are in a range: more than any thread ever gives out.
const RANGE_LOG2: u32 = 40;

impl AllocationId {
    /// The id of blocks that nobody counts: empty ones, and memory from outside that no context has taken in.
    pub const NONE: Self = Self(0);

    /// A new id. Each thread draws from a range of its own: no shared counter on this path.
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

    /// An id from a range of [`AllocationId::new_range`].
    pub(crate) const fn of_range(number: u64) -> Self {
        Self(number)
    }

    /// The first of a range of new ids that the caller gives out in order. Ranges begin anew after some sixteen
    /// million.
    #[cold]
    pub(crate) fn new_range() -> u64 {
        static RANGES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: ranges only need to differ. One more, so that the first of the first is not `NONE`.
        (RANGES.fetch_add(1, Ordering::Relaxed) << RANGE_LOG2) + 1
    }

    /// As a number; zero for [`AllocationId::NONE`].
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
