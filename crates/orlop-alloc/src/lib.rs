//! Allocators for tensors: one trait, the block it hands out, engines over swappable backings, adaptors.
//!
//! # Map
//!
//! | layer | what | modules |
//! |---|---|---|
//! | words | what is asked, what comes back, what goes wrong | [`Request`], [`Block`], [`Error`], [`OutOfMemory`] |
//! | interface | engines implement [`Allocator`]; users hold an [`AllocatorRef`] | [`Allocator`], [`AllocatorRef`] |
//! | backings | where regions come from | [`backing`] |
//! | engines | who cuts regions into blocks | [`caching`], the CPU's default; [`central`], [`engine`] |
//! | adaptors | limits, logs, statistics over any of them | [`adaptor`] |
//! | choice | factories by name, allocators by NUMA node | [`registry`], [`NodeAllocators`] |
//! | bare | Rust's own kinds of allocators: a global one, one for collections | [`bare`] |
//! | context | which allocator serves a device and kind; budgets, the reclaim ladder | [`context`] |
//! | outside | what engines and backends of other crates are built from | [`engine_support`], [`registry`] |
//! | profile | what is still alive by tag, what each step needed | [`profile`] |
//!
//! A block's way down: [`AllocatorRef::allocate`] → [`Allocator::allocate`] → a free chunk, or a region from
//! the [`backing::Backing`]. Its way back: `Block::drop` → [`Allocator::deallocate`] with the streams that
//! used it.

pub mod adaptor;
mod allocator;
pub mod backing;
pub mod bare;
mod block;
pub mod caching;
pub mod central;
pub mod context;
mod copying;
mod deleter;
mod device_memory;
mod device_ops;
pub mod engine;
pub mod engine_support;
mod error;
mod handle;
mod memory_block;
mod node_allocators;
pub mod numa;
mod observer;
mod out_of_memory;
pub mod profile;
mod raw;
mod records;
pub mod registry;
mod replaceable;
mod request;
mod shield;
mod stats;
mod stream_uses;
mod system_memory;
mod tag;
mod typed;

pub use self::allocator::{Allocator, Found, Semantics, TagUse, Usage};
pub use self::block::Block;
pub use self::context::Context;
pub use self::deleter::Deleter;
pub use self::device_memory::{DeviceMemory, device_memory};
pub use self::device_ops::{DeviceOps, HostOps, Place};
pub use self::error::{Error, Result};
pub use self::handle::AllocatorRef;
pub use self::memory_block::MemoryBlock;
pub use self::node_allocators::NodeAllocators;
pub use self::observer::{
    Event, EventClock, Observer, RegionAction, RegionEvent, RegionWatch, RegionWatches,
};
pub use self::out_of_memory::{BinUse, OutOfMemory, Refusal};
pub use self::raw::{Access, RawBlock, Record};
pub use self::request::Request;
pub use self::stats::Stats;
pub use self::stream_uses::StreamUses;
pub use self::tag::Tag;
pub use self::typed::TypedBlock;
pub use orlop_sync::{Account, AllocationId, BlockCounter, OwnerState, Totals};

/// With this the crate's own tests run in memory of the engine that they test.
#[cfg(all(test, feature = "self-hosted", not(loom)))]
#[global_allocator]
static GLOBAL: bare::GlobalAllocator = bare::GlobalAllocator;
