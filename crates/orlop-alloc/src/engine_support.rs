//! What a writer of an engine outside this crate needs besides the [`Allocator`](crate::Allocator) trait.
//!
//! | item | use |
//! |---|---|
//! | [`guarded`] | calls user code (a backing, a callback), whose panic must not unwind the engine |
//! | [`trace_guarded`] | emits a `tracing` event: a subscriber is user code too |
//! | [`SortedRuns`], [`FreeChunk`] | free chunks by size and address: best fit, the lowest of several |
//! | [`RecordSlab`] | records of blocks, dense, with hints that are read without them |
//! | [`StreamUses`] | the set of streams that used a block, in one word |
//! | [`CountingEngine`], [`Counting`] | engines that count their own blocks, with a cache per thread |
//! | [`first_one_from`] | the next non-empty list in a bit map of lists |
//!
//! These are the parts that this crate's own engines are built from, so that an engine for a device costs a
//! writer its policy and its backing, and not another index or another panic guard. Engines report what they
//! hold through [`RegionWatches`](crate::RegionWatches), and blocks through [`Record`](crate::Record). A
//! backing that reserves address space from the system finds it in [`backing::pages`](crate::backing::pages).
//! Placement of blocks whose lifetimes are known, and the detection of periods, are in `orlop-plan`.

pub use crate::bfc::bins::{Free as FreeChunk, first_one_from};
pub use crate::bfc::sorted_runs::{Position, SortedRuns};
pub use crate::block::{RecordSlab, StreamUses};
pub use crate::handle::{Counting, CountingEngine};
pub use orlop_host::shield::{report as trace_guarded, shielded as guarded};
