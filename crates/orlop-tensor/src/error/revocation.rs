//! [`Revocation`]: why a storage has lost its planned memory.

use std::fmt;

/// The end of a tensor of [planned memory](crate::planned), which took the memory of its clones and views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The tensor: its name in quotes ([`PlannedTensor::named`](crate::planned::PlannedTensor::named)), or
    /// its number.
    pub tensor: Box<str>,
    /// The last step of its lifetime. `None` for a lifetime that never ends.
    pub last_step: Option<u64>,
    /// What ended it.
    pub by: RevokedBy,
}

/// What ended a tensor of planned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevokedBy {
    /// The clock moved to this step.
    Step(u64),
    /// The next run began.
    NextRun,
    /// The memory was divided anew, for another plan.
    NewPlan,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, last_step, by } = self;
        match by {
            RevokedBy::Step(step) => write!(f, "step {step} revoked {tensor}")?,
            RevokedBy::NextRun => write!(f, "the next run revoked {tensor}")?,
            RevokedBy::NewPlan => write!(f, "the next plan revoked {tensor}")?,
        }
        match last_step {
            Some(step) => write!(f, ", whose last step was {step}"),
            None => Ok(()),
        }
    }
}
