//! What-if analysis: a recording with other settings and allocators, and in less memory.
//!
//! | question | with |
//! |---|---|
//! | which settings would have been better, by how much, and what would have fitted? | [`WhatIf`] |
//! | which settings are recommended? | [`Advice`] |
//! | what is the smallest memory in which it runs? | [`SmallestMemory`] |
//! | what is the smallest memory for an allocator that knows the future? | [`PerfectPlan`] |
//!
//! Two figures bound every row: the peak of live bytes, which is a lower bound for any allocator, and the
//! smallest static plan that was found.

mod advice;
mod equivalent;
mod perfect;
mod rank;
mod recorded_run;
mod smallest_memory;
mod sweep;
mod what_if_report;

pub use self::advice::{Advice, AdviceReason, DUMP_SNAPSHOT, RECORD_HISTORY};
pub use self::perfect::PerfectPlan;
pub use self::recorded_run::{UnreliableReplay, check_recording};
pub use self::smallest_memory::SmallestMemory;
pub use self::sweep::settings;
pub use self::what_if_report::{MAX_SEARCHED_STEPS, WhatIf, WhatIfReport, WhatIfRow};
