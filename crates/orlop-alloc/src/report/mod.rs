//! What an allocator reports: its statistics, and why a request did not fit.

mod out_of_memory;
mod stats;

pub use self::out_of_memory::{BinUse, OutOfMemory, Refusal};
pub use self::stats::Stats;
