//! Contexts: which allocator serves a device and a memory kind, within which budgets, and what observes it.
//!
//! | layer | contents | modules |
//! |---|---|---|
//! | choice | factories by name, allocators by NUMA node | [`registry`], [`NodeAllocators`] |
//! | context | the allocator of each device and kind; budgets, reclaim, external memory | [`Context`] |
//! | observe | a log, warnings | [`observe`] |
//! | profile | live memory by tag, the needs of each step | [`profile`] |
//!
//! The allocators themselves are in `orlop-alloc`; an engine needs only that crate.
//!
//! ```
//! use orlop_alloc::Request;
//! use orlop_context::Context;
//! use orlop_core::{Device, MemoryKind};
//!
//! let context = Context::new();
//! let weights = context.allocate(Device::CPU, &Request::new(1 << 20).kind(MemoryKind::Persistent))?;
//! assert_eq!(context.stats(Device::CPU).kind(MemoryKind::Persistent).live_bytes, weights.capacity() as u64);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod context;
pub mod observe;
pub mod profile;
pub mod registry;

pub use self::context::{
    AllocatorUse, Budget, BudgetStatus, Context, ContextId, KindUse, MemoryMap, Pressure, PressureCallback,
    PressureGuard, PressureId, Source, StepCount,
};
pub use self::registry::{AllocatorConfig, NodeAllocators};
