//! The timed loop.

use super::touch::{TouchPattern, touch_all, touch_first, touch_pages};
use crate::LabError;
use orlop_alloc::{AllocatorRef, Block, Error, Request};
use orlop_trace::formats::text::{ReplayStep, Trace};
use std::hint::black_box;

/// The index of the operation that failed, and its error.
#[derive(Debug)]
pub(super) struct FailedOperation {
    operation: usize,
    error: Error,
}

impl FailedOperation {
    #[cold]
    pub(super) fn explain(self, trace: &Trace, allocator: &AllocatorRef) -> LabError {
        use orlop_alloc::Allocator as _;
        let Self { operation, error } = self;
        let allocator = allocator.name().into();
        match error {
            Error::NotHostAccessible { .. } => LabError::Untouchable { allocator },
            error => LabError::Replay { allocator, operation: operation + 1, operations: trace.len(), error },
        }
    }
}

/// A replay's blocks by slot.
pub(super) type BlockSlots = Vec<Option<Block>>;

pub(super) fn slots(trace: &Trace) -> BlockSlots {
    std::iter::repeat_with(|| None).take(trace.slots()).collect()
}

/// Replays the trace once. `slots` is empty before the call, and has the blocks that are never freed after
/// it.
pub(super) fn pass(
    trace: &Trace,
    touch: TouchPattern,
    allocator: &AllocatorRef,
    slots: &mut [Option<Block>],
) -> Result<(), FailedOperation> {
    match touch {
        TouchPattern::None => steps(trace, allocator, slots, |_| Ok(())),
        TouchPattern::First => steps(trace, allocator, slots, touch_first),
        TouchPattern::Pages => steps(trace, allocator, slots, touch_pages),
        TouchPattern::All => steps(trace, allocator, slots, touch_all),
    }
}

/// The same loop without an allocator.
pub(super) fn idle(trace: &Trace, slots: &mut [Option<Block>]) {
    for step in trace.steps() {
        match step {
            ReplayStep::Allocate { slot, bytes, stream } => {
                black_box(Request::new(bytes).stream(stream));
                slots[slot] = black_box(None);
            }
            ReplayStep::Free { slot } => slots[slot] = None,
        }
    }
}

/// The loop is compiled for each pattern, without branches.
#[inline]
fn steps(
    trace: &Trace,
    allocator: &AllocatorRef,
    slots: &mut [Option<Block>],
    touch: impl Fn(&mut Block) -> Result<(), Error>,
) -> Result<(), FailedOperation> {
    for (operation, step) in trace.steps().enumerate() {
        match step {
            ReplayStep::Allocate { slot, bytes, stream } => {
                let request = Request::new(bytes).stream(stream);
                let mut block =
                    allocator.allocate(&request).map_err(|error| FailedOperation { operation, error })?;
                touch(&mut block).map_err(|error| FailedOperation { operation, error })?;
                slots[slot] = Some(block);
            }
            ReplayStep::Free { slot } => slots[slot] = None,
        }
    }
    Ok(())
}
