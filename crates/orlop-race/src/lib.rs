//! Vector clocks and a happens-before race check: see the README, which follows.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

mod accesses;
mod clock;
mod order;

pub use accesses::{AccessKind, AccessMap};
pub use clock::VectorClock;
pub use order::{HOST_QUEUE, WorkId, WorkOrder};
