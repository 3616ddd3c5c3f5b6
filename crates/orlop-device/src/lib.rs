//! The device engine: best fit with splitting and coalescing, per stream, by the rules of a [`Policy`].
//!
//! [`Policy::torch`] is PyTorch's CUDACachingAllocator, address for address and figure for figure: what it would have
//! done under other settings can be asked of it. [`Policy::orlop`] is ours. One [`Engine`] runs both, over a
//! [`DeviceBacking`]: a device, [`HostPages`], which is the host's memory in pages that can be moved, or [`NullDevice`],
//! which is addresses and no memory.
//!
//! # How a request is served
//!
//! | step | PyTorch's rules | ours |
//! |---|---|---|
//! | events of blocks that came back | the oldest of each stream is asked about | one |
//! | free memory of the stream | best fit, split if enough remains | the same; in the small pools in constant time |
//! | of other streams | no | yes: the stream that asked waits for the other, on the device |
//! | callbacks | yes | yes |
//! | old regions go back | with a limit and a threshold | the same |
//! | once more would be held than was ever in use | | free neighbours of different streams merge, and it looks again |
//! | new memory | regions, or pages at the end of a range | pages; moved from where they are free once more is held than was ever in use |
//! | large unsplit regions go back | with `max_split_size` | the same |
//! | where pages moved again and again | | the round is learned, and its blocks have places |
//! | all streams are waited for | and everything free goes back | the same, but it looks once more before |
//!
//! # Invariants
//!
//! 1. The chunks of a region cover it without gap or overlap, in order of address.
//! 2. A free chunk is in the index of its pool and stream, once; a chunk without pages in that of addresses; no other is.
//! 3. No two neighbours of one stream are both free, or both without pages; of two free neighbours of different streams one
//!    is in the list of those that can merge.
//! 4. Reserved bytes are those of the regions, pages counted where there are some.
//! 5. Pages are taken only from free chunks, after their stream was waited for.
//!
//! [`Engine::verify`] proves 1 to 4 by walking everything.

mod allocator;
mod backing;
mod engine;
mod error;
mod pages;
mod period;
mod policy;
mod register;
mod sim;
mod stats;
// Most touch no memory: an interpreter finds nothing, and takes minutes for it. Those that do map files, which Miri cannot.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

pub use self::allocator::DeviceAllocator;
pub use self::backing::{DeviceBacking, EventId};
pub use self::engine::{
    DeviceBlock, DeviceChunk, DeviceChunkState, DeviceRequest, DeviceSegment, Engine, PoolId, StreamFilter,
};
pub use self::error::DeviceError;
pub use self::pages::HostPages;
pub use self::policy::{ConfError, Extensions, Growth, IndexKind, Policy, ROUNDING_INTERVALS, TorchConf};
pub use self::register::register;
pub use self::sim::NullDevice;
pub use self::stats::{DeviceStats, Stat, StatByPool};
