//! Engines beside the BFC engine: each a small rule of its own over any backing.
//!
//! | engine | rule | for |
//! |---|---|---|
//! | [`Direct`] | every block is a region | few large blocks; the floor to compare with |
//! | [`Pool`] | exact sizes, LRU-bounded (T10) | few distinct sizes |
//! | [`Pow2`] | powers of two, per-thread (P16) | speed at any price in memory |
//! | [`Arena`] | bump and rewind (L17) | workspace that dies together |
//! | [`ThreadArenas`] | an arena for each thread | workspace of threads, counted together |

mod arena;
mod bound;
mod direct;
mod lru;
mod pool;
mod pow2;
mod supply;
mod thread_arenas;

pub use self::arena::{Arena, Reset};
pub use self::direct::Direct;
pub use self::pool::{Pool, PoolBuilder, Rounding};
pub use self::pow2::{BUCKETS, Pow2};
pub use self::thread_arenas::ThreadArenas;
