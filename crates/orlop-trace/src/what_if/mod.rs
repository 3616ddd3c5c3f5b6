//! What would have been: a workload under other rules, other settings, in less memory.
//!
//! | question | with |
//! |---|---|
//! | what would this allocator have done? | [`Simulation`] |
//! | the same, of a recording that is larger than the memory? | [`StreamedReplay`] |
//! | is the replay true to the recorded run? | [`Fidelity`] |
//! | which settings would have been better, how much, and what would have fitted? | [`WhatIf`] |
//!
//! Every answer comes from the production engines, run over addresses instead of memory. Beside them stand two figures
//! that no allocator can beat: the peak of live bytes, and the smallest static plan that was found, for an allocator that
//! knew the future.

mod fidelity;
mod lanes;
mod machine;
mod report;
mod rules;
mod simulation;
mod smallest;
mod stream;
mod streams;
mod sweep;

pub use self::fidelity::Fidelity;
pub use self::report::{Perfect, WhatIf, WhatIfReport, WhatIfRow};
pub use self::rules::Rules;
pub use self::simulation::{FailedRequest, Outcome, Simulation};
pub use self::smallest::Smallest;
pub use self::stream::StreamedReplay;
pub use self::streams::MAX_STREAMS;
pub use self::sweep::settings;
