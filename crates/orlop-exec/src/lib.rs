//! Execution plans: a model that runs without allocating.
//!
//! 1. **Declare** the buffers of a model in a [`PlanBuilder`]: name, shape, dtype, device, kind, and the
//!    steps in which each is used; or take them from a graph of operators ([`PlanBuilder::graph`]).
//! 2. [`finish`](PlanBuilder::finish) **plans**: each buffer gets its place in one arena per device and
//!    kind. The bytes of the arenas are known then ([`ExecutionPlan::arenas`]).
//! 3. [`prepare`](ExecutionPlan::prepare) **reserves** exactly these bytes from a context, and makes one
//!    tensor per buffer. An [`Execution`] is the result. Two executions of one plan have two sets of
//!    arenas, and can run at once.
//! 4. [`step`](Execution::step) **lends** the tensors that are live in a step. Nothing is allocated, locked
//!    or counted: a step only checks that the buffers whose time is over are no longer held.
//!
//! ```
//! use orlop_context::Context;
//! use orlop_core::DType;
//! use orlop_exec::{BufferSpec, PlanBuilder};
//!
//! let mut plan = PlanBuilder::new();
//! let input = plan.buffer(BufferSpec::new("input", [64, 256], DType::F32)?, 0..=1)?;
//! let hidden = plan.buffer(BufferSpec::new("hidden", [64, 1024], DType::F32)?, 1..=2)?;
//! let output = plan.buffer(BufferSpec::new("output", [64, 256], DType::F32)?, 2..=3)?;
//! let plan = plan.finish()?;
//! // The output gets the bytes of the input.
//! assert_eq!(plan.workspace_bytes(), 64 * (256 + 1024) * 4);
//!
//! let mut execution = plan.prepare(&Context::new())?;
//! for _ in 0..3 {
//!     execution.begin()?;
//!     execution.step(0)?.tensor(input)?.fill_(2.0)?;
//!     let step = execution.step(1)?;
//!     step.tensor(hidden)?.copy_(&step.tensor(input)?.select(1, 0)?.unsqueeze(1)?)?;
//!     let step = execution.step(2)?;
//!     step.tensor(output)?.copy_(&step.tensor(hidden)?.narrow(1, 0, 256)?)?;
//!     assert_eq!(execution.step(3)?.tensor(output)?.to_vec::<f32>()?[7], 2.0);
//! }
//! # Ok::<(), orlop_exec::ExecError>(())
//! ```
//!
//! # Lifetimes
//!
//! A tensor is a reference that ends with the [`StepGuard`] that lent it:
//!
//! ```compile_fail,E0499
//! # use orlop_context::Context;
//! # use orlop_core::DType;
//! # use orlop_exec::{BufferSpec, PlanBuilder};
//! # let mut plan = PlanBuilder::new();
//! # let input = plan.buffer(BufferSpec::new("input", [64], DType::F32).unwrap(), 0..=0).unwrap();
//! # let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
//! let first = execution.step(0).unwrap();
//! let tensor = first.tensor(input).unwrap();
//! let second = execution.step(1).unwrap();
//! tensor.fill_(1.0).unwrap();
//! ```
//!
//! ```compile_fail,E0521
//! # use orlop_context::Context;
//! # use orlop_core::DType;
//! # use orlop_exec::{BufferSpec, ExecError, PlanBuilder};
//! # let mut plan = PlanBuilder::new();
//! # let input = plan.buffer(BufferSpec::new("input", [64], DType::F32).unwrap(), 0..=0).unwrap();
//! # let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
//! let mut kept = None;
//! execution.run(|_, step| {
//!     kept = Some(step.tensor(input)?);
//!     Ok::<_, ExecError>(())
//! }).unwrap();
//! ```
//!
//! Clones and views may be made of it, and stop working when the buffer's last step is over (see
//! [`orlop_tensor::planned`]).
//!
//! # Devices
//!
//! An arena on a device is reserved on the stream that is current for the device when the plan is prepared
//! ([`Context::on_stream`](orlop_context::Context::on_stream)); that should be the stream of most of the
//! work. Other streams can use its tensors, too: a buffer that follows another one in the same bytes comes
//! after all streams that used the former one, and an arena that is dropped is reused after them. For that,
//! uses have to be recorded. Copies and fills by the library record their stream. For a kernel of the
//! program, [`acquire_for`](orlop_alloc::MemoryBlock::acquire_for) of the tensor's block does, and
//! `KernelPointer` of `orlop-cuda`. Within the steps of one buffer, and for persistent ones, the order of the
//! streams is the program's task, as with every tensor. See [`orlop_tensor::planned`].
//!
//! The host waits for none of this. In arenas of pinned host memory, the library waits for each of its
//! copies, and streams cannot be recorded
//! ([`StreamsNotHonoured`](orlop_alloc::Error::StreamsNotHonoured)): wait for a kernel before the step ends.
//! So it is on a device whose allocator does not wait for streams.
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod builder;
mod error;
mod execution;
mod graph;
mod plan;
mod prepare;
mod spec;

pub use self::builder::PlanBuilder;
pub use self::error::{ExecError, Result};
pub use self::execution::{Execution, Rebound, StepGuard};
pub use self::graph::GraphBuffers;
pub use self::plan::{ArenaPlan, ExecutionPlan};
pub use self::prepare::PrepareError;
pub use self::spec::{BufferId, BufferSpec};
