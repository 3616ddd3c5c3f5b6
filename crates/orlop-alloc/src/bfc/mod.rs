//! The BFC engine: best fit with coalescing. Regions from a backing are cut into chunks, and a request takes
//! the best fitting free chunk.
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the rules, as data |
//! | `heap` | the data structure: search, split, merge. Single-threaded, without a backing |
//! | `chunks` | the slab of chunks, and the map from addresses to chunks |
//! | `bins`, `sorted_runs` | the index of free chunks |
//! | `coalesce` | splitting and merging of chunks |
//! | `regions` | regions: adding, extending, shortening, removing |
//! | `leases` | free chunks that an engine takes as a whole and subdivides itself |
//! | `watch` | region events for observers |
//! | `stamps` | timestamped free |
//! | `inspect` | invariants and reports |
//! | `builder`, `growth` | settings; the steps of growth |
//! | `engine` | the lock around the heap, and the [`Allocator`](crate::Allocator) implementation |
//!
//! The metadata is separate from the memory it manages, so that memory may be a device's, or address space
//! only.

pub(crate) mod bins;
mod builder;
pub(crate) mod chunks;
mod coalesce;
mod engine;
mod growth;
pub(crate) mod heap;
mod inspect;
pub(crate) mod leases;
pub mod policy;
pub(crate) mod regions;
pub(crate) mod sorted_runs;
mod stamps;
mod watch;

pub use self::builder::BfcBuilder;
pub use self::engine::Bfc;
pub use self::policy::{BfcPolicy, RegionGrowth, Split};
