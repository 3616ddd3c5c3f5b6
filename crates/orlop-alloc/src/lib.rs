//! Allocators for tensors: the [`Allocator`] trait, the blocks it hands out, engines over swappable backings,
//! and adaptors.
//!
//! # Map
//!
//! | layer | contents | modules |
//! |---|---|---|
//! | requests | what a user requests, gets, and what can fail | [`Request`], [`Block`], [`Error`] |
//! | interface | engines implement the trait, users hold a handle | [`Allocator`], [`AllocatorRef`] |
//! | backings | the sources of regions | [`backing`] |
//! | engines | divide regions into blocks | [`caching`] (default), [`bfc`], [`engine`] |
//! | adaptors | limits, tracking, hardening, retry over any allocator | [`adaptor`] |
//! | observers | recorders, statistics, logs: [`AllocatorRef::add_observer`] | [`Observer`], [`Event`] |
//! | bare | a global allocator for Rust, and one for collections | [`bare`] |
//! | engines elsewhere | what authors of engines, adaptors and backends need besides | [`engine_support`] |
//!
//! Factories by name, the context that maps a device and a kind to an allocator, budgets and profiles are in
//! `orlop-context`.
//!
//! Allocation: [`AllocatorRef::allocate`] → [`Allocator::allocate`] → a free chunk, or a region from the
//! [`backing::Backing`]. Free: `Block::drop` → [`Allocator::deallocate`] with the streams that used the
//! block.
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod adaptor;
mod allocator;
pub mod backing;
pub mod bare;
pub mod bfc;
mod block;
mod cache_trims;
pub mod caching;
mod device_ops;
pub mod engine;
mod engine_scope;
pub mod engine_support;
mod error;
mod forward;
mod handle;
mod observer;
mod report;

pub use self::allocator::{Allocator, LookupResult, Semantics, TagUse, Usage};
pub use self::block::{
    Block, CopyRange, CopyStatus, Deleter, MemoryBlock, PendingCopy, Request, SharedElements, Tag, TypedBlock,
};
pub use self::device_ops::{DeviceOps, DevicePtr, HostOps, StreamEvent};
pub use self::error::{Error, Result};
pub use self::handle::{AllocatorRef, ExternalAccount};
pub use self::observer::{Event, Observer, RegionAction, RegionEvent};
pub use self::report::{BinUse, LadderStep, OutOfMemory, Refusal, RefusalCause, Stats};
pub use orlop_host::backing::Access;
pub use orlop_host::{DeviceMemory, forward_backing};
pub use orlop_sync::{AllocationId, Totals};

// Public behind `engine_support`.
pub(crate) use self::block::{RawBlock, Record, StreamUses};
pub(crate) use self::observer::{RegionDelivery, RegionWatch, RegionWatches};
pub(crate) use orlop_host::StridedLoops;

#[doc(hidden)]
pub use orlop_host::__forwarded;

/// For macros of this crate only.
#[doc(hidden)]
pub mod __private {
    pub use orlop_core::Device;
    pub use std::sync::Arc;
    pub use std::vec::Vec;
}

/// Runs this crate's own tests in memory of the engine under test.
#[cfg(all(test, feature = "self-hosted", not(loom)))]
#[global_allocator]
static GLOBAL: bare::GlobalAllocator = bare::GlobalAllocator;
