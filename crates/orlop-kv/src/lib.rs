//! Paged KV memory for hybrid models: layer groups in one budget, sequences, prefix reuse, admission.
//!
//! | layer | contents | types |
//! |---|---|---|
//! | geometry | layer groups, page sizes, arenas | [`KvGeometry`], [`LayerGroup`] |
//! | models | the groups of some published models | [`model_groups`] |
//! | pool | one budget of large pages; sequences; steps | [`KvPool`], [`Sequence`], [`StepId`] |
//! | reuse | keys, what a hit needs, eviction, checkpoints | [`ChainFields`], [`CheckpointPolicy`] |
//! | admission | what fits, pledges, quotas | [`AdmissionRequest`], [`AdmissionVerdict`] |
//! | tiers | host memory and a store below the device | [`KvTiers`], [`BlockStore`], [`PageTransfer`] |
//! | numbers | statistics, causes of misses, events | [`KvStats`], [`MissCause`], [`KvEvent`] |
//!
//! The crate manages bytes and ids. Attention, and the copies that a pool asks for, are the engine's.
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod blocks;
mod chain;
mod error;
mod event;
mod event_log;
mod free_ids;
mod geometry;
mod index;
mod memory;
mod models;
mod pages;
mod pool;
mod sip;
mod tier;

pub use self::chain::{Adapter, ChainFields, ChainSecret, MediaSpan, Tenant};
pub use self::error::{GroupProblem, KvError, NotStored, Result};
pub use self::event::{KvEvent, RemovalReason};
pub use self::geometry::{ArenaSpec, ArenaView, GroupKind, KvGeometry, LayerGroup};
pub use self::memory::{PoolMemory, PoolMemoryMut};
pub use self::models::{MODELS, model_groups};
pub use self::pool::{
    Admission, AdmissionRequest, AdmissionVerdict, CheckpointPolicy, FreshPage, HashedRequest, KernelBlocks,
    KernelInteger, KvLayer, KvPool, KvPoolBuilder, KvStats, LengthMix, MissCause, PageCopy, PrefixHasher,
    PrefixPin, RowRange, Sequence, StepId, StorePage, TicketId, Truncation, Visibility,
};
pub use self::tier::{
    BlockKey, BlockStore, DeviceTransfer, FileStore, KvTier, KvTiers, PageTransfer, TierFault, TierStats,
};

/// The priority of cached blocks without one of their own, between 0 and 100.
pub const DEFAULT_PRIORITY: u8 = 35;
