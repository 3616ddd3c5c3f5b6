//! What would have been: a workload under other rules, other settings, in less memory.
//!
//! | question | with |
//! |---|---|
//! | what would this allocator have done? | [`Simulation`] |
//! | the same, of a recording that is larger than the memory? | [`StreamedReplay`] |
//! | is the replay true to the recorded run? | [`Fidelity`] |
//! | how much memory did the recorded run have, and where did it empty the cache? | [`RunConditions`] |
//! | which settings would have been better, how much, and what would have fitted? | [`WhatIf`] |
//!
//! Every answer comes from the production engines, run over addresses instead of memory. Beside them stand two figures
//! that no allocator can beat: the peak of live bytes, and the smallest static plan that was found, for an allocator that
//! knew the future.

mod advice;
mod conditions;
mod fidelity;
mod lanes;
mod machine;
mod perfect;
mod rank;
mod recorded;
mod report;
mod rules;
mod simulation;
mod smallest;
mod stream;
mod streams;
mod sweep;

pub use self::advice::{Advice, AdviceReason, DUMP_SNAPSHOT, RECORD_HISTORY};
pub use self::conditions::{MemoryLimit, RunConditions};
pub use self::fidelity::Fidelity;
pub use self::perfect::Perfect;
pub use self::recorded::{Doubt, recording_doubt};
pub use self::report::{WhatIf, WhatIfReport, WhatIfRow};
pub use self::rules::Rules;
pub use self::simulation::{FailedRequest, Simulation, SimulationOutcome};
pub use self::smallest::Smallest;
pub use self::stream::StreamedReplay;
pub use self::streams::MAX_STREAMS;
pub use self::sweep::settings;
