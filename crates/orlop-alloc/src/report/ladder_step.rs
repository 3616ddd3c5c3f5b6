//! The steps of a context's reclaim ladder, for reports and events.

use std::fmt;

/// A step of the reclaim ladder, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LadderStep {
    /// Give back the cached memory of the kind's own allocator.
    OwnCache,
    /// Give back the cached memory of other kinds' allocators on the device.
    OtherCaches,
    /// Run the callbacks registered for the kind.
    Callbacks,
    /// Borrow unused budget of other kinds.
    Borrow,
}

impl LadderStep {
    /// All steps, in order.
    pub const ALL: [Self; 4] = [Self::OwnCache, Self::OtherCaches, Self::Callbacks, Self::Borrow];

    /// Returns the word for the bytes of the step in messages: `lent` for [`LadderStep::Borrow`], which frees
    /// no memory, and `freed` for all others.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::OwnCache | Self::OtherCaches | Self::Callbacks => "freed",
            Self::Borrow => "lent",
        }
    }
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
