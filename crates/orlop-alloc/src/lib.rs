//! Allocators for tensors: one trait, the block it hands out, engines over swappable backings, adaptors.
//!
//! # Map
//!
//! | layer | what | modules |
//! |---|---|---|
//! | words | what is asked, what comes back, what goes wrong | [`Request`], [`Block`], [`Error`], [`OutOfMemory`] |
//! | interface | engines implement [`Allocator`]; users hold an [`AllocatorRef`] | [`Allocator`], [`AllocatorRef`] |
//! | backings | where regions come from | [`backing`] |
//! | engines | who cuts regions into blocks | [`caching`], the CPU's default; [`bfc`], [`engine`] |
//! | adaptors | limits, logs, statistics over any of them | [`adaptor`] |
//! | choice | factories by name, allocators by NUMA node | [`registry`], [`NodeAllocators`] |
//! | bare | Rust's own kinds of allocators: a global one, one for collections | [`bare`] |
//! | context | which allocator serves a device and kind; budgets, the reclaim ladder | [`context`] |
//! | profile | what is still alive by tag, what each step needed | [`profile`] |
//!
//! A block's way down: [`AllocatorRef::allocate`] → [`Allocator::allocate`] → a free chunk, or a region from
//! the [`backing::Backing`]. Its way back: `Block::drop` → [`Allocator::deallocate`] with the streams that
//! used it.

pub mod adaptor;
mod allocator;
pub mod backing;
pub mod bare;
pub mod bfc;
mod block;
pub mod caching;
pub mod context;
pub mod device;
mod device_ops;
pub mod engine;
mod error;
mod handle;
mod host;
mod observer;
pub mod profile;
pub mod registry;
mod report;
mod shield;

pub use self::allocator::{Allocator, Found, Semantics, TagUse, Usage};
pub use self::block::{
    Access, Block, Deleter, MemoryBlock, RawBlock, Record, Request, StreamUses, Tag, TypedBlock,
};
pub use self::context::Context;
pub use self::device_ops::{DeviceMemory, DeviceOps, HostOps, Place, device_memory};
pub use self::error::{Error, Result};
pub use self::handle::AllocatorRef;
pub use self::host::{NodeAllocators, numa};
pub use self::observer::{
    Event, EventClock, Observer, RegionAction, RegionEvent, RegionWatch, RegionWatches,
};
pub use self::report::{BinUse, OutOfMemory, Refusal, Stats};
pub use orlop_sync::{Account, AllocationId, BlockCounter, OwnerState, Totals};

/// With this the crate's own tests run in memory of the engine that they test.
#[cfg(all(test, feature = "self-hosted", not(loom)))]
#[global_allocator]
static GLOBAL: bare::GlobalAllocator = bare::GlobalAllocator;
