//! The BFC engine: best fit with coalescing. Regions from a backing are cut into chunks, and a request takes
//! the best fitting free chunk.
//!
//! Each module uses only those above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the rules, as data |
//! | `chunks` | the slab of chunks, and the map from addresses to chunks |
//! | `bins`, `sorted_runs` | the index of free chunks |
//! | `stamps` | timestamped free: the chunks that wait |
//! | `watch` | region events for observers |
//! | `heap` | the data structure of these four, and lookups. Single-threaded, without a backing |
//! | `coalesce` | the heap's chunks: splitting, merging |
//! | `regions` | the heap's regions: adding, extending, shortening, removing |
//! | `blocks` | the heap's blocks: search, cut, growth in place, free |
//! | `leases` | free chunks that an engine takes as a whole and subdivides itself |
//! | `inspect` | invariants and reports |
//! | `builder`, `growth` | settings; the steps of growth |
//! | `engine` | the lock around the heap, and the [`Allocator`](crate::Allocator) implementation |
//!
//! The metadata is separate from the memory it manages, so that memory may be a device's, or address space
//! only.

pub(crate) mod bins;
mod blocks;
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
