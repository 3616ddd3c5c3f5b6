//! What a writer of an engine outside this crate needs besides the [`Allocator`](crate::Allocator) trait.
//!
//! | item | use |
//! |---|---|
//! | [`RawBlock`], [`Record`] | a block below the handles, and the facts about it |
//! | [`StreamUses`] | the set of streams that used a block, in one word |
//! | [`CountingEngine`], [`Counting`] | engines that count their own blocks, with a cache per thread |
//! | [`BlockCounter`], [`OwnerState`], [`Account`] | what such a counter counts, and its last block |
//! | [`RegionWatches`], [`RegionWatch`], [`RegionDelivery`] | events of regions, for observers |
//! | [`SharedObserver`] | an observer in a list: its panics end there |
//! | [`EventClock`] | the order of events, for recorders |
//! | [`DeviceOps`], [`DevicePtr`], [`StridedLoops`], [`LoopDim`] | copies, casts and fills of a device |
//! | [`HostOps`] | those of the host |
//! | [`ContextHandle`], [`WeakAllocator`], [`Charged`], [`Charge`] | what contexts are built from |
//! | [`guarded`] | calls user code (a backing, a callback), whose panic must not unwind the engine |
//! | [`trace_guarded`] | emits a `tracing` event: a subscriber is user code too |
//! | [`CacheTrims`] | the caches of allocators that share memory, trimmed before a request fails |
//! | [`EngineScope`] | marks a thread that holds an engine's locks: it trims no other allocator |
//! | [`SortedRuns`], [`FreeChunk`] | free chunks by size and address: best fit, the lowest of several |
//! | [`RecordSlab`] | records of blocks, dense, with hints that are read without them |
//! | [`first_one_from`] | the next non-empty list in a bit map of lists |
//!
//! These are the parts that this crate's own engines are built from, so that an engine for a device costs a
//! writer its policy and its backing, and not another index or another panic guard. Engines report what they
//! hold through [`RegionWatches`], and blocks through [`Record`]. A
//! backing that reserves address space from the system finds it in [`backing::pages`](crate::backing::pages).
//! Placement of blocks whose lifetimes are known, and the detection of periods, are in `orlop-plan`.

pub use crate::adaptor::charged::{Charge, Charged};
pub use crate::bfc::bins::{Free as FreeChunk, first_one_from};
pub use crate::bfc::sorted_runs::{Position, SortedRuns};
pub use crate::block::{RawBlock, Record, RecordSlab, StreamUses};
pub use crate::cache_trims::CacheTrims;
pub use crate::device_ops::{DeviceOps, DevicePtr, HostOps};
pub use crate::engine_scope::EngineScope;
pub use crate::handle::{ContextHandle, Counting, CountingEngine, WeakAllocator};
pub use crate::observer::{EventClock, RegionDelivery, RegionWatch, RegionWatches, SharedObserver};
pub use orlop_host::shield::{report as trace_guarded, shielded as guarded};
pub use orlop_host::{LoopDim, StridedLoops};
pub use orlop_sync::{Account, BlockCounter, OwnerState};
