//! How many handles an allocator has, and whether there can ever be another.
//!
//! Handles are made from handles, and from blocks: whoever holds a block may ask its allocator for more memory, although
//! no handle is at hand. Blocks are not counted here (the [`ShardedCounters`](super::ShardedCounters) do that), so a block may come to an
//! allocator whose last handle went, or is going just now. Then the answer is no, for good: the count never rises from
//! zero, whoever brings it there closes the ledger once, and nothing enters a ledger that is closed.
//!
//! # Ordering
//!
//! * [`Handles::leave`] (`handles.leave`, acquire and release) pairs with itself: who is told that it was the last sees
//!   what was done through all other handles. Each step on the count is read-modify-write, so the handles that join in
//!   between do not come between the two.
//! * [`Handles::only`] (`handles.only`, acquire) pairs with it in the same way.
//! * [`Handles::join`] and [`Handles::join_from_block`] are relaxed. They lead to nothing that the one who joins has not
//!   seen: it has a handle, or a block that was handed out by the allocator and then handed to it.

use crate::ordering;
use crate::primitives::End;
use crate::primitives::atomic::{AtomicUsize, Ordering};

/// The count; see the head of this file. One handle at first.
#[derive(Debug)]
pub struct Handles(AtomicUsize);

impl Default for Handles {
    fn default() -> Self {
        Self::new()
    }
}

impl Handles {
    /// One handle.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// One more, made from a handle that is counted.
    pub fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One more, made from a block that has not come back, if there is still a handle. Whether there is.
    #[must_use = "if not, there is no handle"]
    pub fn join_from_block(&self) -> bool {
        let more = |handles: usize| (handles > 0).then(|| handles.wrapping_add(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One handle goes. Whether it was the last: that is told once, and then there is never another.
    #[must_use = "the last one has to close the ledger"]
    pub fn leave(&self) -> bool {
        self.0.fetch_sub(1, ordering!("handles.leave", AcqRel)) == 1
    }

    /// Whether there is one handle. What was done through others before they went has happened.
    #[must_use]
    pub fn only(&self) -> bool {
        self.0.load(ordering!("handles.only", Acquire)) == 1
    }
}

impl Handles {
    /// Nobody uses the count any more: see `primitives/end.rs`.
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
