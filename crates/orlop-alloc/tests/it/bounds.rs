//! Auto traits and sizes of public types.

use orlop_alloc::adaptor::{Failing, Limit, Retry, Tracking, Waiting};
use orlop_alloc::backing::{BackingRef, Mmap, Null, Pinned, Region, System, Visited};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::engine_support::StreamUses;
use orlop_alloc::{
    AllocatorRef, Block, Deleter, Error, OutOfMemory, Request, Stats, Tag, TypedBlock,
    engine_support::{HostOps, RawBlock, Record},
};
use orlop_context::observe::{Logging, Warn};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Budget, BudgetStatus};
use orlop_context::{Context, NodeAllocators};
use orlop_sync::{GrowableHeap, ShardedCounters, Slots};
use static_assertions::{assert_eq_size, assert_impl_all, assert_not_impl_any};
use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;

assert_impl_all!(AllocatorRef: Send, Sync, Clone, Debug);
assert_impl_all!(AllocatorRef<Pow2>: Send, Sync, Clone, Debug);
assert_impl_all!(Block: Send, Sync, Debug);
assert_impl_all!(Context: Send, Sync, Clone, Debug);
assert_impl_all!(Error: Send, Sync, std::error::Error);
assert_impl_all!(OutOfMemory: Send, Sync, Clone, Debug);
assert_impl_all!(Request: Send, Sync, Copy);
assert_impl_all!(Stats: Send, Sync, Copy);
assert_impl_all!(Tag: Send, Sync, Copy);
assert_impl_all!(RawBlock: Send, Sync);
assert_impl_all!(Record: Send, Sync);
assert_impl_all!(Deleter: Send, Sync);
assert_impl_all!(StreamUses: Send, Sync);
assert_impl_all!(ShardedCounters: Send, Sync);
assert_impl_all!(Registry: Send, Sync);
assert_impl_all!(NodeAllocators: Send, Sync);
assert_impl_all!(HostOps: Send, Sync);
assert_impl_all!(AllocatorConfig: Send, Sync);
assert_impl_all!(Budget: Send, Sync, Copy);
assert_impl_all!(BudgetStatus: Send, Sync, Copy);
assert_impl_all!(BfcPolicy: Send, Sync, Clone);
assert_impl_all!(Region: Send, Sync, Copy);
assert_impl_all!(Bfc<BackingRef>: Send, Sync);
assert_impl_all!(Arena<System>: Send, Sync);
assert_impl_all!(Direct<Mmap>: Send, Sync);
assert_impl_all!(Pool<Null>: Send, Sync);
assert_impl_all!(Pow2<Pinned>: Send, Sync);
assert_impl_all!(Visited<System>: Send, Sync);
assert_impl_all!(Limit<AllocatorRef>: Send, Sync);
assert_impl_all!(Tracking<AllocatorRef>: Send, Sync);
assert_impl_all!(Logging: Send, Sync);
assert_impl_all!(Failing<AllocatorRef>: Send, Sync);
assert_impl_all!(Retry<AllocatorRef>: Send, Sync);
assert_impl_all!(Waiting<AllocatorRef>: Send, Sync);
assert_impl_all!(Warn: Send, Sync);

// A slot moves its value between threads, and never shares it.
assert_impl_all!(Slots<Cell<u32>>: Send, Sync);
assert_not_impl_any!(Slots<Rc<u32>>: Send, Sync);

// A typed block is `Send` and `Sync` if its elements are.
assert_impl_all!(TypedBlock<String>: Send, Sync);
assert_not_impl_any!(TypedBlock<Rc<u32>>: Send, Sync);
assert_not_impl_any!(TypedBlock<Cell<u32>>: Sync);

// A block has one owner.
assert_not_impl_any!(Block: Clone, Copy);
assert_not_impl_any!(RawBlock: Clone, Copy);
assert_eq_size!(Option<Block>, usize);

/// Engines outside of the crate need these names.
#[test]
fn the_protocol_types_are_public() {
    fn named<T>() {}
    named::<GrowableHeap<()>>();
}
