//! The conformance suite for planned memory: engines that lend tensors at places fixed in advance.
//!
//! | part | module |
//! |---|---|
//! | random declarations of buffers | `program` |
//! | the expected contents and addresses | `model` |
//! | the parts of the suite | `parts` |
//!
//! What the suite for allocators checks of blocks is checked here of lent tensors: they do not overlap while
//! they can be used, unless they are declared to; addresses are aligned, and the same in each step and run;
//! nothing but their users changes their contents; bytes are counted under the kind; a failure of the backing
//! is an error without effect; everything works in several threads and is released in any order.
//!
//! Not part of it: requests at the edges, raw pointers, trimming, peaks, stream uses and zeroing belong to
//! the allocator that the arenas come from. No planned memory is zeroed, persistent buffers neither: in half
//! of the programs it is dirty.

mod model;
mod parts;
mod program;

pub use self::program::{BufferDeclaration, BufferPlace, NEVER, declarations, memory_of};

use crate::backings::{BackingCounters, CountingBacking, FailingBacking, FailureSchedule, PoisonBacking};
use crate::fault::ConformanceFault;
use crate::suite::{cases, run_parts};
use orlop_alloc::backing::{BackingRef, System};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, Error};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use orlop_tensor::Tensor;
use std::fmt;
use std::sync::Arc;

/// An engine that lends tensors at planned places, with the buffers of one program.
pub trait PlannedEngine: Send + Sync {
    /// Begins a run: step 0 is next.
    ///
    /// # Errors
    ///
    /// [`LendRefusal::InUse`]
    fn begin(&mut self) -> Result<(), LendRefusal>;

    /// Goes on to a step.
    ///
    /// # Errors
    ///
    /// [`LendRefusal::InUse`], [`LendRefusal::Backwards`]
    fn step(&mut self, step: u64) -> Result<(), LendRefusal>;

    /// Lends the tensor of a buffer in the present step.
    ///
    /// # Errors
    ///
    /// [`LendRefusal::NotLive`], [`LendRefusal::Unknown`]
    fn tensor(&self, buffer: usize) -> Result<&Tensor, LendRefusal>;

    /// Returns the bytes that it states to reserve under a kind.
    fn stated_bytes(&self, kind: MemoryKind) -> u64;
}

/// Why an engine did not lend a tensor, or did not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LendRefusal {
    /// The buffer is not used in this step.
    #[error("the buffer is not live")]
    NotLive,
    /// A buffer is accessed after its last step.
    #[error("a buffer is in use after its last step")]
    InUse,
    /// The step is before the present one.
    #[error("the step is before the present one")]
    Backwards,
    /// There is no such buffer.
    #[error("there is no such buffer")]
    Unknown,
    /// Any other error, as text.
    #[error("{0}")]
    Other(Box<str>),
}

/// A function that makes an engine with these buffers, in memory of a context.
pub type MakePlanned<'a> =
    dyn Fn(&[BufferDeclaration], &Context) -> Result<Box<dyn PlannedEngine>, Error> + Sync + 'a;

/// The subject of the suite's run.
pub(crate) struct PlannedSuite<'a> {
    name: &'a str,
    make: &'a MakePlanned<'a>,
}

/// A context over a backing that the suite controls.
struct PlannedSetup {
    context: Context,
    counts: Arc<BackingCounters>,
    failures: Arc<FailureSchedule>,
}

impl PlannedSetup {
    /// Makes a context whose arenas are regions of the backing, each of exactly the requested bytes, with
    /// dirty memory if `poisoned`.
    fn new(poisoned: bool) -> Result<Self, ConformanceFault> {
        let base: BackingRef =
            if poisoned { Arc::new(PoisonBacking::new(System::new())) } else { Arc::new(System::new()) };
        let (failing, failures) = FailingBacking::new(base);
        let (counting, counts) = CountingBacking::new(failing);
        let context = Context::new();
        context.register(Device::CPU, MemoryKind::Default, Direct::new(counting).into_ref())?;
        Ok(Self { context, counts, failures })
    }

    /// Checks that the backing has everything back. The context must be dropped before.
    fn check_returned(counts: &BackingCounters) -> Result<(), ConformanceFault> {
        Ok(counts.check_returned()?)
    }
}

/// Runs the suite over engines from `make`, which declares all buffers and reserves their memory from the
/// context. A buffer of steps that never end is persistent.
///
/// # Panics
///
/// If a part fails; the message names all failed parts with their faults.
pub fn planned_conformance(
    name: &str,
    make: impl Fn(&[BufferDeclaration], &Context) -> Result<Box<dyn PlannedEngine>, Error> + Sync,
) {
    run_parts(name, &PlannedSuite { name, make: &make }, parts::PARTS);
}

impl fmt::Debug for PlannedSuite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedSuite").field("name", &self.name).finish_non_exhaustive()
    }
}
