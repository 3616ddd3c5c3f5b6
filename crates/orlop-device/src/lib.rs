//! The best-fit engine for devices: splitting and coalescing, per stream, by the rules of a [`Policy`].
//!
//! [`Policy::torch`] is PyTorch's CUDACachingAllocator, address for address and figure for figure: a replay
//! under other settings shows what it would have done. [`Policy::orlop`] reserves less and fails later. One
//! [`Engine`] runs both, over a [`DeviceBacking`]: a device, [`HostPages`] (the host's memory in pages that
//! can be moved) or [`NullDevice`] (addresses without memory). [`DeviceAllocator`] puts an engine behind a
//! lock and the [`Allocator`](orlop_alloc::Allocator) trait.
//!
//! | module | what it holds |
//! |---|---|
//! | `backing` | what an engine needs of a device, and the guard around it |
//! | `engine` | the engine; its `ladder` shows the whole way of a request |
//! | `policy` | its rules, as data; PyTorch's settings |
//! | `pages` | pages that can be moved: growth by them, and the host's memory as such a device |
//! | `period` | a workload that repeats, and the planned places of its blocks |
//! | `sim` | the simulated device, for replays |
//! | `stats` | statistics, under PyTorch's names |
//! | `allocator`, `register` | the engine as an allocator, and by name |
//!
//! # How a request is served
//!
//! | step | PyTorch's rules | orlop's |
//! |---|---|---|
//! | events of pending frees | the oldest of each stream is queried | one |
//! | free chunks of the stream | best fit, split if enough remains | the same; small pools in constant time |
//! | free chunks of other streams | no | yes: the request's stream waits for the other, on the device |
//! | callbacks | yes | yes |
//! | garbage collection | with a limit and a threshold | the same |
//! | growth beyond the peak | | free neighbours of different streams merge first |
//! | growth | regions, or pages at the end of a range | pages: new ones, or free ones that are moved |
//! | private pools that lend their memory are searched | yes | yes |
//! | large unsplit regions are released | with `max_split_size` | the same |
//! | all streams are waited for | and all free memory is released | the same, after another search |
//!
//! Where pages moved again and again, the engine looks for a period in the requests, and plans places for its
//! blocks.
//!
//! # Invariants
//!
//! 1. The chunks of a region cover it without gap or overlap, in order of address.
//! 2. A free chunk is in the index of its pool and stream, once; a chunk without pages in that of addresses;
//!    no other is.
//! 3. No two neighbours of one stream are both free, or both without pages; of two free neighbours of
//!    different streams one is in the list of those that can merge.
//! 4. Reserved bytes are those of the regions; of reservations, those of the pages.
//! 5. Pages are taken only from free chunks, after their stream was waited for.
//!
//! [`Engine::verify`] proves 1 to 4 by walking all metadata.
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod allocator;
mod backing;
mod config;
mod engine;
mod error;
mod pages;
mod period;
mod policy;
mod register;
mod sim;
mod stats;
mod stream_ids;
// Most access no memory: Miri finds nothing, and takes minutes for it. The others map files, which Miri
// cannot.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

pub use self::allocator::DeviceAllocator;
pub use self::backing::{BackingError, CaptureCount, DeviceBacking, DriverFailure, EventId, VisitedDevice};
pub use self::config::DeviceConfig;
pub use self::engine::{
    DeviceBlock, DeviceChunk, DeviceChunkState, DeviceRequest, DeviceSegment, Engine, PoolId, StreamFilter,
};
pub use self::error::DeviceError;
pub use self::pages::HostPages;
pub use self::policy::{Extensions, Growth, IndexKind, Policy};
pub use self::register::register;
pub use self::sim::NullDevice;
pub use self::stats::{DeviceStats, Stat, StatByPool};
pub use self::stream_ids::StreamIdSet;
pub use orlop_core::torch::{ConfError, ROUNDING_INTERVALS, TieRule, TorchConf};
