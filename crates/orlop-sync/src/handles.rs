//! The number of an allocator's handles, and whether another can ever be created.
//!
//! Handles are created from handles and from blocks: the holder of a block may allocate more from the block's
//! allocator without having a handle. Blocks are not counted here
//! ([`ShardedCounters`](super::ShardedCounters) do that), so a block can try to create a handle after the
//! last one was dropped, or while it is being dropped. Then it gets none, now and later: the count never
//! rises from zero, the one thread that brings it to zero closes the counters, and no block is counted in
//! after that.
//!
//! # Ordering
//!
//! * [`Handles::leave`] (`handles.leave`, acquire and release) pairs with itself: the thread that drops the
//!   last handle sees everything that was done through all other handles. Each change of the count is a
//!   read-modify-write, so handles created in between do not break the release sequence.
//! * [`Handles::only`] (`handles.only`, acquire) pairs with it in the same way.
//! * [`Handles::join`] and [`Handles::join_from_block`] are relaxed. They give access to nothing that the
//!   calling thread has not seen: it has a handle, or a block that the allocator handed out and that was then
//!   passed to it.

use crate::ordering;
use crate::primitives::End;
use crate::primitives::atomic::{AtomicUsize, Ordering};

/// Far from the end of the count, as in `Arc`: threads that are just counting cannot reach it.
const MAX_HANDLES: usize = usize::MAX / 2;

/// A count of handles, at first one.
#[derive(Debug)]
pub struct Handles(AtomicUsize);

impl Default for Handles {
    fn default() -> Self {
        Self::new()
    }
}

impl Handles {
    /// Creates the count of an owner with one handle.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// Counts a handle created from a handle that is counted. The process ends if there are too many, which
    /// takes handles that are leaked: the count must not wrap around to zero.
    pub fn join(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) > MAX_HANDLES {
            std::process::abort();
        }
    }

    /// Counts a handle created from a block that was not returned yet. Returns `false`, and counts nothing,
    /// if no handle is left.
    #[must_use = "if `false`, no handle was created"]
    pub fn join_from_block(&self) -> bool {
        let more = |handles: usize| (1..=MAX_HANDLES).contains(&handles).then(|| handles + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts out a handle that is dropped. Returns `true` if it was the last: exactly one call does, and no
    /// handle is counted afterwards.
    #[must_use = "the thread that drops the last handle must close the counters"]
    pub fn leave(&self) -> bool {
        self.0.fetch_sub(1, ordering!("handles.leave", AcqRel)) == 1
    }

    /// Returns `true` if one handle is left. Everything done through the others happened before.
    #[must_use]
    pub fn only(&self) -> bool {
        self.0.load(ordering!("handles.only", Acquire)) == 1
    }
}

impl Handles {
    /// Ends the atomic word: see [`End`].
    #[doc(hidden)]
    pub fn end(&mut self) {
        self.0.end();
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, unix, not(miri), not(loom)))]
mod tests {
    use super::*;

    /// As after handles were leaked in a loop.
    #[test]
    fn a_count_of_handles_does_not_wrap_around() {
        let full = Handles(AtomicUsize::new(MAX_HANDLES + 1));
        assert!(!full.join_from_block());
        orlop_testkit::aborts::assert_aborts(
            "handles::tests::a_count_of_handles_does_not_wrap_around",
            || full.join(),
        );
    }
}
