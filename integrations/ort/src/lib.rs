//! ONNX Runtime in memory of orlop.
//!
//! [`OrtMemory`] registers an allocator with an environment of the crate [`ort`]. All sessions of the
//! environment that ask for it share that allocator: what they hold is counted by kind and tag, a budget
//! limits it, and a context's reclaim ladder runs before a request fails. Inputs and outputs are tensors of
//! orlop, without a copy.
//!
//! ```no_run
//! use orlop::prelude::*;
//! use orlop_ort::OrtMemory;
//! use ort::session::Session;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let environment = ort::init().build()?;
//! let context = Context::new();
//! let memory = OrtMemory::register(&environment, context.clone())?;
//! let mut session = Session::builder(&environment)?.with_env_allocators()?.commit_from_file("model.onnx")?;
//!
//! let input = Tensor::zeros([1, 3, 48, 192], DType::F32)?;
//! for (name, output) in memory.run(&mut session, &[("x", &input)])? {
//!     println!("{name}: {:?}", output.sizes());
//! }
//! println!("{}", context.memory_map());
//! # Ok(())
//! # }
//! ```
//!
//! `docs/onnx-runtime.md` of the repository has the figures, and what does not pass through the allocator.

mod bad_alloc;
mod blocks;
mod elements;
mod error;
mod memory;
mod refusals;
mod tensors;

pub use self::blocks::OrtCounts;
pub use self::error::{Error, Result};
pub use self::memory::OrtMemory;
