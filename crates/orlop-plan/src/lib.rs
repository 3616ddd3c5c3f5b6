//! Static memory plans: lifetimes in, offsets out.
//!
//! If the lifetimes of all buffers are known in advance (a graph that runs repeatedly, a training step, a
//! trace), the buffers can be placed in one block of memory so that those whose lifetimes do not overlap
//! share bytes. Finding the smallest block is NP-hard. So a plan comes with a lower bound of all plans
//! and a verdict: [optimal](Verdict::Optimal), or [within a factor](Verdict::Within) of the bound. In a given
//! capacity a problem [fits](CapacityVerdict::Fits) or is [infeasible](CapacityVerdict::Infeasible), as far
//! as that is proven.
//!
//! | step | with |
//! |---|---|
//! | describe the buffers and their lifetimes | [`Problem`], [`ProblemBuilder`], [`Buffer`]; files: [`csv`] |
//! | lifetimes from a graph; orders with a small peak | [`GraphBuilder`], [`Graph`], [`MinPeak`] |
//! | compute the live bytes over time, and the bound | [`Problem::load_profile`], [`Problem::lower_bound`] |
//! | lifetimes on concurrent streams, from the waits between them | [`ConcurrentBuilder`] |
//! | plan | [`Planner`]; for comparison [`greedy_by_size`], the common planner |
//! | fix offsets, reserve ranges | [`ProblemBuilder::fix`], [`ProblemBuilder::reserve`] |
//! | place buffers in others: views, concatenations, aliases | [`ProblemBuilder::place_in`] |
//! | gaps in lifetimes, pairs that share no bytes | [`ProblemBuilder::gap`], [`ProblemBuilder::exclude`] |
//! | plan for blocks of limited size | [`Problem::limit_blocks`] |
//! | divide buffers among several memories | [`SpacePlanner`], [`Space`] |
//! | see what makes the bound | [`Problem::bound_witness`] |
//! | plan again after a change | [`replan`], [`Planner::plan_from`] |
//! | use | [`Plan::offset`], [`Plan::height`], [`Plan::verdict`] |
//! | write it for others | [`Plan::write_csv`] (minimalloc), [`Plan::tflite_metadata`] |
//! | check a plan from any source | [`verify`] |
//! | place buffers in the free memory between live blocks | [`placement`] |
//! | detect that a workload repeats, and predict its requests | [`period`] |
//!
//! ```
//! use orlop_plan::{Buffer, ProblemBuilder, Planner, Verdict, verify};
//!
//! let mut builder = ProblemBuilder::new();
//! let input = builder.push_named("input", Buffer::new(0..2, 1000))?;
//! let hidden = builder.push_named("hidden", Buffer::new(1..4, 3072))?;
//! let output = builder.push_named("output", Buffer::new(3..5, 1000))?;
//! let problem = builder.finish();
//!
//! let plan = Planner::new().plan(&problem);
//! verify(&problem, &plan)?;
//! // Input and output share their bytes.
//! assert_eq!([input, hidden, output].map(|buffer| plan.offset(buffer)), [Some(3072), Some(0), Some(3072)]);
//! assert_eq!((plan.height(), plan.verdict()), (4072, Verdict::Optimal));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate does not allocate the planned memory. Times are abstract, sizes are bytes, and planners are
//! deterministic unless their budget is a time.

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod buffer;
mod capacity;
mod chain;
mod concurrent;
mod conflicts;
mod constraint;
pub mod csv;
mod ejection;
mod error;
mod first_fit;
mod graph;
mod greedy;
mod heights;
mod live;
mod load;
mod normal;
pub mod period;
pub mod placement;
mod plan;
mod planner;
mod problem;
mod replan;
mod ring;
mod skyline;
mod spaces;
mod sweep;
mod tflite;
mod verify;
mod witness;

pub use self::buffer::Buffer;
pub use self::concurrent::{ConcurrentBuilder, StreamStep};
pub use self::csv::error::{CsvError, ProblemColumn};
pub use self::error::{BufferRef, PlanError, ProblemError};
pub use self::graph::{FoundOrder, Graph, GraphBuilder, GraphError, GraphProblem, MinPeak, NodeId, ValueId};
pub use self::greedy::greedy_by_size;
pub use self::load::{LoadProfile, LoadStep};
pub use self::plan::{CapacityVerdict, Plan, Verdict};
pub use self::planner::{Planner, SearchBudget, SearchProgress};
pub use self::problem::{MAX_BUFFERS, Problem, ProblemBuilder};
pub use self::replan::replan;
pub use self::spaces::{Space, SpaceError, SpacePlan, SpacePlanner, SpacesPlan};
pub use self::verify::verify;
pub use self::witness::BoundWitness;
