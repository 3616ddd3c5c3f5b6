//! The names that nearly every program needs: `use orlop::prelude::*;`.
//!
//! | name | what it is | needs the feature |
//! |---|---|---|
//! | [`Context`] | finds the allocator for a device and a memory kind; keeps budgets and figures | |
//! | [`Request`] | what is requested: bytes, kind, alignment, tag | |
//! | [`Block`] | owned memory; goes back to its allocator when it is dropped | |
//! | [`AllocatorRef`] | a counted handle to an allocator | |
//! | [`Allocator`] | the trait behind the handle; in scope for its methods | |
//! | [`Device`] | where memory is | |
//! | [`MemoryKind`] | what memory is for: weights, workspace, KV cache | |
//! | [`DType`] | the type of a tensor's elements | |
#![cfg_attr(feature = "tensor", doc = "| [`Tensor`] | a view of a storage; clones share it | `tensor` |")]
#![cfg_attr(
    feature = "tensor",
    doc = "| [`TensorOptions`] | how a tensor is made: dtype, kind, allocator, tag | `tensor` |"
)]
//!
//! `Error` and `Result` are not here: each layer has its own, and a program has its own.
//!
//! ```
//! use orlop::prelude::*;
//!
//! let context = Context::new();
//! let block: Block = context.allocate(Device::CPU, &Request::new(1000).kind(MemoryKind::KvCache))?;
//! let allocator: AllocatorRef = context.allocator(Device::CPU, MemoryKind::KvCache)?;
//! println!("{} bytes from {}", block.len(), allocator.name());
//! # Ok::<(), orlop::memory::Error>(())
//! ```

pub use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
pub use orlop_context::Context;
pub use orlop_core::{DType, Device, MemoryKind};
#[cfg(feature = "tensor")]
pub use orlop_tensor::{Tensor, TensorOptions};
