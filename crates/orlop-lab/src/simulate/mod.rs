//! Simulation: a recorded workload with other allocators and settings, by the production engines over
//! addresses instead of memory.
//!
//! | question | with |
//! |---|---|
//! | what would this allocator have done? | [`Simulation`] |
//! | the same, for a recording that is larger than memory? | [`StreamedReplay`] |
//! | does the simulation reproduce the recorded run? | [`Fidelity`] |
//! | how much memory did the recorded run have, and where did it empty the cache? | [`RunConditions`] |

mod completion_queue;
mod conditions;
mod event_pools;
mod fidelity;
mod folded_streams;
mod outcome_verdict;
mod queued_event;
mod rules;
mod simulation;
mod simulator;
mod streamed_replay;

pub use self::conditions::{MemoryLimit, RunConditions};
pub use self::fidelity::Fidelity;
pub use self::folded_streams::MAX_STREAMS;
pub use self::rules::AllocatorRules;
pub use self::simulation::{FailedRequest, Simulation, SimulationOutcome};
pub(crate) use self::simulator::{MemoryCapacity, UNLIMITED};
pub use self::streamed_replay::StreamedReplay;
