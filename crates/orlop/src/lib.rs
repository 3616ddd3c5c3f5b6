//! The memory deck for tensors: everything between an operator and `malloc` or `cuMemAlloc`.
//!
//! This crate only re-exports; each layer can be used alone.
//!
//! | module | layer | crate |
//! |---|---|---|
//! | [`core`] | dtypes, devices, memory kinds, shapes, strides, layouts | `orlop-core` |
//! | [`alloc`] | allocators, blocks, backings, adaptors, context | `orlop-alloc` |
//! | [`sync`] | thread slots, sharded counters, remote free lists, for writers of engines | `orlop-sync` |
#![cfg_attr(
    feature = "plan",
    doc = "| [`plan`] | static memory plans: lifetimes in, offsets out | `orlop-plan` |"
)]
#![cfg_attr(
    feature = "tensor",
    doc = "| [`tensor`] | tensors: storage, views, copy-on-write, accessors, interchange | `orlop-tensor` |"
)]
#![cfg_attr(
    feature = "trace",
    doc = "| [`trace`] | allocation traces: read, inspect, replay | `orlop-trace` |"
)]
//!
//! ```
//! use orlop::alloc::{Context, Request};
//! use orlop::core::{Device, MemoryKind};
//!
//! let context = Context::new();
//! let mut block = context.allocate(Device::CPU, &Request::new(4096).kind(MemoryKind::Workspace).zeroed())?;
//! block.bytes_mut()?[0] = 1;
//! # Ok::<(), orlop::alloc::Error>(())
//! ```
#![forbid(unsafe_code)]

pub use orlop_alloc as alloc;
pub use orlop_core as core;
#[cfg(feature = "plan")]
pub use orlop_plan as plan;
pub use orlop_sync as sync;
#[cfg(feature = "tensor")]
pub use orlop_tensor as tensor;
#[cfg(feature = "trace")]
pub use orlop_trace as trace;
