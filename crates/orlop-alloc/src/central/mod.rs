//! The central engine: regions from a backing, cut into chunks, free chunks by best fit (T8).
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the rules, as data |
//! | `heap` | the structure: search, cut, merge. Single-threaded, no backing |
//! | `chunks`, `bins`, `sorted_runs` | its parts: slab and region map, index of free chunks |
//! | `regions` | how regions come, grow, shrink and go |
//! | `watch` | what is told of regions |
//! | `stamps` | timestamped free (T9) |
//! | `inspect` | invariants and reports |
//! | `engine` | the lock, the backing, growth, and the [`Allocator`](crate::Allocator) interface |
//!
//! The metadata is apart from the memory it manages, so the memory may be a device's, or not there at all.

pub(crate) mod bins;
pub(crate) mod chunks;
mod engine;
pub(crate) mod heap;
mod inspect;
pub(crate) mod leases;
pub mod policy;
pub(crate) mod regions;
pub(crate) mod sorted_runs;
mod stamps;
mod watch;

pub use self::engine::{Central, CentralBuilder};
pub use self::policy::{Policy, RegionGrowth, Split};
