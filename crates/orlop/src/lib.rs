//! The memory deck for tensors: everything between an operator and `malloc` or `cuMemAlloc`.
//!
//! This crate only re-exports; each layer can be used alone. Start with the [`prelude`].
//!
//! | module | layer | crate |
//! |---|---|---|
//! | [`types`] | dtypes, devices, memory kinds, shapes, strides, layouts | `orlop-core` |
//! | [`memory`] | allocators, adaptors; contexts, budgets, profiles | `orlop-alloc`, `orlop-context` |
#![cfg_attr(
    feature = "device",
    doc = "| [`device`] | allocators for devices; `device::register` offers them by name | `orlop-device` |"
)]
#![cfg_attr(
    feature = "cuda",
    doc = "| [`cuda`] | CUDA devices; `cuda::install` gives one to a context | `orlop-cuda` |"
)]
#![cfg_attr(
    feature = "plan",
    doc = "| [`plan`] | static memory plans: lifetimes in, offsets out | `orlop-plan` |"
)]
#![cfg_attr(
    feature = "onnx",
    doc = "| [`onnx`] | ONNX graphs as planning problems and execution plans | `orlop-onnx` |"
)]
#![cfg_attr(
    feature = "tensor",
    doc = "| [`tensor`] | tensors: storage, views, copy-on-write, accessors, interchange | `orlop-tensor` |"
)]
#![cfg_attr(
    feature = "exec",
    doc = "| [`exec`] | execution plans: tensors at planned places, lent step by step | `orlop-exec` |"
)]
#![cfg_attr(
    feature = "kv",
    doc = "| [`kv`] | paged KV memory: layer groups, prefix reuse, admission | `orlop-kv` |"
)]
#![cfg_attr(
    feature = "trace",
    doc = "| [`trace`] | recordings of allocators: record, read, write | `orlop-trace` |"
)]
#![cfg_attr(
    feature = "lab",
    doc = "| [`lab`] | answers from recordings: analyze, simulate, compare, report | `orlop-lab` |"
)]
//!
//! The modules of `orlop-core` and `orlop-alloc` have names of their own here, because `orlop::core` and
//! `orlop::alloc` would hide Rust's `core` and `alloc` in a file that imports them.
//!
//! ```
//! use orlop::prelude::*;
//!
//! let context = Context::new();
//! let mut block = context.allocate(Device::CPU, &Request::new(4096).kind(MemoryKind::Workspace).zeroed())?;
//! block.bytes_mut()?[0] = 1;
//! # Ok::<(), orlop::memory::Error>(())
//! ```
//!
//! The crate's `examples/` show a small engine, budgets, arenas, plans, a backing of your own, weight files,
//! out-of-memory reports and recordings: `cargo run --release -p orlop --example decode`.
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The program on the project's first page is a test.
#[cfg(all(doctest, feature = "tensor"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod prelude;

pub mod engine_support;
pub mod memory;
pub use orlop_core as types;
#[cfg(feature = "cuda")]
pub use orlop_cuda as cuda;
#[cfg(feature = "device")]
pub use orlop_device as device;
#[cfg(feature = "exec")]
pub use orlop_exec as exec;
#[cfg(feature = "files")]
pub use orlop_host::files;
#[cfg(feature = "kv")]
pub use orlop_kv as kv;
#[cfg(feature = "lab")]
pub use orlop_lab as lab;
#[cfg(feature = "onnx")]
pub use orlop_onnx as onnx;
#[cfg(feature = "plan")]
pub use orlop_plan as plan;
#[cfg(feature = "tensor")]
pub use orlop_tensor as tensor;
#[cfg(feature = "trace")]
pub use orlop_trace as trace;
