//! Reports of an allocator: its statistics, and out-of-memory reports.

mod ladder_step;
mod out_of_memory;
mod stats;

pub use self::ladder_step::LadderStep;
pub use self::out_of_memory::{BinUse, OutOfMemory, Refusal, RefusalCause};
pub use self::stats::Stats;
