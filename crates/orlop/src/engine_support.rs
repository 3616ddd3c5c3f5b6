//! What authors of engines, adaptors, backings and backends need besides [`memory`](crate::memory).
//!
//! | what | items |
//! |---|---|
//! | blocks below the handles; engines that count them; operations of a device | the items of `orlop-alloc` |
//! | adaptors and wrappers that forward what they do not change | [`forward`], [`forward_backing`] |
//! | thread slots, sharded counters, remote free lists | [`sync`] |
//! | the host: copies, casts and fills of memory, its size, NUMA, threads | [`host`] |
//!
//! How to write one is in `docs/extending.md` of the repository; `orlop-testkit` has the conformance suite.

pub use orlop_alloc::engine_support::*;
pub use orlop_alloc::{forward, forward_backing};
pub use orlop_host as host;
pub use orlop_sync as sync;
