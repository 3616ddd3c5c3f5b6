//! A wall-clock bench of CPU allocators: plain traces, replayed against real memory.
//!
//! | question | with |
//! |---|---|
//! | how long does an operation take, and how much memory is reserved? | [`Replay`], [`ReplayReport`] |
//! | how small can a fixed pool be? | [`smallest_pool()`] |
//!
//! The simulations of [`simulate`](crate::simulate) show what an allocator decides; this module measures the
//! cost on the machine that runs it.

mod pass;
mod process;
mod replay;
mod replay_report;
mod smallest_pool;
mod start_gate;
mod timing;
mod touch;
mod workers;

pub use self::replay::{PassProgress, Replay};
pub use self::replay_report::{ReplayReport, ReplaySummary};
pub use self::smallest_pool::{SmallestPool, replay_in_smallest_pool, smallest_pool};
pub use self::touch::{TouchPattern, UnknownTouchPattern};
