//! What refused a request, and whether the request was served in the end.
//!
//! A context retries a refused request after it freed memory elsewhere. So a refusal is not a failure, and a
//! request that a budget refused says nothing about the memory of the device. A request that failed has one
//! [`OutOfMemory`](super::EventAction::OutOfMemory) event, unless a budget refused it; every other refusal is
//! a [`Refused`](super::EventAction::Refused) event.

use super::{EventAction, TextId};
use orlop_alloc::RefusalCause;

/// Facts about a refusal, beside its event. Sources other than a recorder have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalDetail {
    /// The index of the event.
    pub event: u32,
    /// What refused the request: the device, a limit of the allocator or a budget.
    pub cause: RefusalCause,
    /// The name of the allocator that refused the request. For a budget, the name of its memory kind.
    pub refuser: TextId,
    /// What became of the request.
    pub outcome: RefusalOutcome,
}

/// What became of a request after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalOutcome {
    /// The request failed: this is its last refusal.
    Failed,
    /// The request was retried, and refused again.
    Retried,
    /// The request was served by a retry.
    Served,
}

impl RefusalOutcome {
    /// All outcomes, in the order of their numbers in binary files: append only.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Retried, Self::Served];

    /// Returns the name: `failed`, `retried` or `served`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Served => "served",
        }
    }

    /// Returns the action of the event of such a refusal.
    #[must_use]
    pub fn action(self, cause: RefusalCause) -> EventAction {
        match self {
            Self::Failed if cause != RefusalCause::Budget => EventAction::OutOfMemory,
            _ => EventAction::Refused,
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

/// Returns the cause of this name.
pub(crate) fn cause_from_name(name: &str) -> Option<RefusalCause> {
    RefusalCause::ALL.into_iter().find(|cause| cause.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_memory_are_out_of_memory() {
        for cause in RefusalCause::ALL {
            assert_eq!(cause_from_name(cause.name()), Some(cause));
            for outcome in RefusalOutcome::ALL {
                assert_eq!(RefusalOutcome::from_name(outcome.name()), Some(outcome));
                let failed = outcome == RefusalOutcome::Failed && cause != RefusalCause::Budget;
                assert_eq!(outcome.action(cause) == EventAction::OutOfMemory, failed);
            }
        }
        assert_eq!((cause_from_name("vram"), RefusalOutcome::from_name("")), (None, None));
    }
}
