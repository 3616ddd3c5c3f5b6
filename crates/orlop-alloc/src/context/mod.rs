//! Placeholder.

use std::fmt;

/// What the reclaim ladder tries for a request that does not fit, in this order (X4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LadderStep {
    /// Cached memory of the kind's own allocator.
    OwnCache,
    /// Cached memory of other kinds' allocators on the device.
    OtherCaches,
    /// The callbacks registered for the kind.
    Callbacks,
    /// Unused budget of other kinds.
    Borrow,
}

impl fmt::Display for LadderStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnCache => "own cache",
            Self::OtherCaches => "other kinds' caches",
            Self::Callbacks => "callbacks",
            Self::Borrow => "borrowing",
        })
    }
}
