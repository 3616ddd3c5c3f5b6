//! [`ExecError`]: the errors of this crate, which name buffers as they were declared.

use orlop_core::{Alignment, Device, MemoryKind};
use orlop_plan::{GraphError, PlanError, ProblemError};
use orlop_tensor::planned::{PlannedError, StrayWrite, Unsanitizable};
use std::ops::RangeInclusive;

/// The result of functions of this crate.
pub type Result<T, E = ExecError> = std::result::Result<T, E>;

/// Errors of execution plans.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The buffer is one of another plan, which declares other buffers.
    #[error("buffer {buffer} is of another plan: in this one, \"{name}\" has its number")]
    OtherPlan {
        /// The number of the buffer.
        buffer: usize,
        /// The name of the buffer that has this number here.
        name: Box<str>,
    },
    /// The plan has no buffer of this number: it is one of another plan.
    #[error("there is no buffer {buffer} in this plan of {buffers}")]
    UnknownBuffer {
        /// The number of the buffer.
        buffer: usize,
        /// The number of buffers in the plan.
        buffers: usize,
    },
    /// The buffer is not used in this step.
    #[error("\"{name}\" is used in the steps {steps:?}, and this is step {step}")]
    NotLive {
        /// The name of the buffer.
        name: Box<str>,
        /// Its steps, as they were declared.
        steps: RangeInclusive<u64>,
        /// The present step.
        step: u64,
    },
    /// The buffer is still in use after its last step.
    #[error("\"{name}\" is in use after its last step")]
    InUse {
        /// The name of the buffer.
        name: Box<str>,
        /// How it is used.
        source: orlop_tensor::Error,
    },
    /// A tensor cannot be bound to the buffer.
    #[error("the tensor cannot be bound to \"{name}\"")]
    NotBound {
        /// The name of the buffer.
        name: Box<str>,
        /// The reason.
        source: orlop_tensor::Error,
    },
    /// A tensor was to be bound to a view that does not begin where its buffer does.
    #[error("the tensor cannot be bound to \"{name}\", which does not begin where its buffer does")]
    BoundInside {
        /// The name of the view.
        name: Box<str>,
    },
    /// Stray writes into an arena cannot be searched for.
    #[error("the {kind} arena of {device}")]
    NotSanitized {
        /// The device of the arena.
        device: Device,
        /// Its memory kind.
        kind: MemoryKind,
        /// The reason.
        source: Unsanitizable,
    },
    /// The number of blocks is not that of the arenas.
    #[error("{blocks} blocks for {arenas} arenas")]
    Blocks {
        /// The number of blocks.
        blocks: usize,
        /// The number of arenas.
        arenas: usize,
    },
    /// A block does not have what its arena needs.
    #[error("the block of arena {arena} needs {bytes} bytes on {device}, aligned to {align}")]
    UnfitBlock {
        /// The number of the arena.
        arena: usize,
        /// The bytes that it needs.
        bytes: usize,
        /// The alignment that it needs.
        align: Alignment,
        /// Its device.
        device: Device,
    },
    /// The step is before the present one.
    #[error("step {step} is before the present one, {now}: `begin` starts the next run")]
    Backwards {
        /// The step given.
        step: u64,
        /// The present step.
        now: u64,
    },
    /// Bytes were changed that were not lent (see [`Execution::sanitize`](crate::Execution::sanitize)).
    #[error("{0}")]
    StrayWrite(StrayWrite),
    /// A range of steps without a step.
    #[error("\"{name}\" has no steps")]
    NoSteps {
        /// The name of the buffer.
        name: Box<str>,
    },
    /// A view, or an output in place, needs more bytes than the buffer has.
    #[error("\"{name}\" needs {needed} bytes, and \"{of}\" has {bytes}")]
    TooSmall {
        /// The name of the view.
        name: Box<str>,
        /// The end of the view in the buffer.
        needed: usize,
        /// The name of the buffer.
        of: Box<str>,
        /// The bytes of the buffer.
        bytes: usize,
    },
    /// A buffer over another one is on another device, of another kind, or used before it.
    #[error("\"{name}\" cannot be over \"{over}\": {why}")]
    NotOver {
        /// The name of the buffer.
        name: Box<str>,
        /// The name of the other one.
        over: Box<str>,
        /// The reason.
        why: &'static str,
    },
    /// The bytes of a value of a graph differ from those of its description.
    #[error("\"{name}\" has {bytes} bytes in the graph, and {described} as described")]
    SizeMismatch {
        /// The name of the value.
        name: Box<str>,
        /// Its bytes in the graph.
        bytes: u64,
        /// Its bytes by shape and dtype.
        described: usize,
    },
    /// An arena is larger than this machine can address.
    #[error("an arena of {bytes} bytes is more than this machine can address")]
    TooLarge {
        /// The bytes of the arena.
        bytes: u64,
    },
    /// An error of the tensors.
    #[error(transparent)]
    Tensor(#[from] orlop_tensor::Error),
    /// No memory for an arena.
    #[error(transparent)]
    Alloc(#[from] orlop_alloc::Error),
    /// An invalid graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The buffers are too many or too large.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// An invalid plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Another fault of planned memory.
    #[error(transparent)]
    Planned(PlannedError),
}

impl ExecError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Tensor(error) => error.is_out_of_memory(),
            Self::Alloc(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

impl From<orlop_core::Error> for ExecError {
    fn from(error: orlop_core::Error) -> Self {
        Self::Tensor(error.into())
    }
}
