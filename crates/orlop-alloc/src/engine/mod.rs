//! Small engines over any backing, beside the caching, BFC and device engines.
//!
//! | engine | rule | suited to |
//! |---|---|---|
//! | [`Direct`] | a region per block | few large blocks; a baseline for comparisons |
//! | [`Pool`] | a cache of exact sizes, bounded, LRU | few distinct sizes |
//! | [`Pow2`] | a cache of powers of two, per thread | speed at the cost of memory |
//! | [`Arena`] | bump allocation and rewind | workspace that is freed together |
//! | [`UpstreamArena`] | the same over another allocator, of a device too | workspace in device memory |
//! | [`ThreadArenas`] | an arena per thread | workspace of threads, counted together |

mod arena;
mod direct;
mod pool;
mod pow2;
mod region_source;
mod thread_arenas;
mod upstream_arena;

pub use self::arena::{Arena, Reset};
pub use self::direct::Direct;
pub use self::pool::{Pool, PoolBuilder, Rounding};
pub use self::pow2::Pow2;
pub use self::thread_arenas::ThreadArenas;
pub use self::upstream_arena::UpstreamArena;
