//! Execution in memory of the caller.

use crate::{ArenaPlan, ExecError, Execution, ExecutionPlan};
use orlop_alloc::Block;
use orlop_context::Context;

/// Why an execution does not begin in blocks of the caller, with the blocks.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct PrepareError {
    /// What is wrong.
    #[source]
    pub error: ExecError,
    /// The blocks that were given.
    pub blocks: Vec<Block>,
}

impl ExecutionPlan {
    /// Makes the tensors in blocks of the caller, one for each of the [`arenas`](Self::arenas) in their
    /// order: of an allocator, or of a tensor ([`Storage::into_block`](orlop_tensor::Storage::into_block)). A
    /// block is on the device of its arena and has at least its bytes and its alignment; its memory kind and
    /// its contents do not matter. The context gives memory only to [`rebind`](Execution::rebind).
    ///
    /// ```
    /// use orlop_context::Context;
    /// use orlop_core::DType;
    /// use orlop_exec::{BufferSpec, PlanBuilder};
    /// use orlop_tensor::Tensor;
    ///
    /// let mut plan = PlanBuilder::new();
    /// let buffer = plan.buffer(BufferSpec::new("hidden", [64], DType::F32)?, 0..=0)?;
    /// let plan = plan.finish()?;
    /// let context = Context::new();
    /// let arena = &plan.arenas()[0];
    /// let block = context.allocate(arena.device(), &orlop_alloc::Request::new(4096).align(arena.align()))?;
    /// let mut execution = plan.prepare_in(&context, vec![block])?;
    /// execution.step(0)?.tensor(buffer)?.fill_(1.0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PrepareError`] with the blocks: [`ExecError::Blocks`] for another number of them,
    /// [`ExecError::UnfitBlock`].
    pub fn prepare_in(&self, context: &Context, blocks: Vec<Block>) -> Result<Execution, Box<PrepareError>> {
        let unfit = |(number, (arena, block)): (usize, (&ArenaPlan, &Block))| {
            let fits = block.len() >= arena.bytes() && block.align() >= arena.align();
            (!fits || block.device() != arena.device()).then(|| ExecError::UnfitBlock {
                arena: number,
                bytes: arena.bytes(),
                align: arena.align(),
                device: arena.device(),
            })
        };
        let error = if blocks.len() == self.arenas().len() {
            self.arenas().iter().zip(&blocks).enumerate().find_map(unfit)
        } else {
            Some(ExecError::Blocks { blocks: blocks.len(), arenas: self.arenas().len() })
        };
        match error {
            Some(error) => Err(Box::new(PrepareError { error, blocks })),
            None => Execution::in_blocks(self, context, blocks)
                .map_err(|error| Box::new(PrepareError { error, blocks: Vec::new() })),
        }
    }
}
