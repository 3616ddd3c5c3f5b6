//! [`PlannedEngine`]: what the suite tests.

use super::program::BufferDeclaration;
use orlop_alloc::Error;
use orlop_context::Context;
use orlop_core::MemoryKind;
use orlop_tensor::Tensor;

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
