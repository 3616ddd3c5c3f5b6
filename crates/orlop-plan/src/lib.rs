//! Static memory plans: lifetimes in, offsets out.
//!
//! When it is known in advance which buffers will live when (a graph that is run again and again, a step of
//! training, a trace), they can be laid into one block of memory so that those whose lifetimes do not meet
//! share bytes. How small can that block be? The question is hard (NP-complete), so a plan here always comes
//! with a bound that no plan can beat, and a verdict: [optimal](Verdict::Optimal), or [so
//! much](Verdict::Within) above the bound at most.
//!
//! | step | with |
//! |---|---|
//! | say what lives when | [`Problem`], [`ProblemBuilder`], [`Buffer`]; files: [`csv`] |
//! | see how much is live when, and the bound | [`Problem::load_profile`], [`Problem::lower_bound`] |
//! | plan | [`Skyline`], which is quick and good; [`greedy_by_size`], which others use, to compare with |
//! | use | [`Plan::offset`], [`Plan::height`], [`Plan::verdict`] |
//! | trust nobody | [`verify`] |
//! | place buffers into the free memory between blocks that stay | [`placement`] |
//! | find out that a workload repeats, and what it will request | [`period`] |
//!
//! ```
//! use orlop_plan::{Buffer, ProblemBuilder, Skyline, Verdict, verify};
//!
//! let mut builder = ProblemBuilder::new();
//! let input = builder.push_named("input", Buffer::new(0..2, 1000))?;
//! let hidden = builder.push_named("hidden", Buffer::new(1..4, 3072))?;
//! let output = builder.push_named("output", Buffer::new(3..5, 1000))?;
//! let problem = builder.finish();
//!
//! let plan = Skyline::new().plan(&problem);
//! verify(&problem, &plan)?;
//! // Input and output share their bytes.
//! assert_eq!([input, hidden, output].map(|buffer| plan.offset(buffer)), [Some(3072), Some(0), Some(3072)]);
//! assert_eq!((plan.height(), plan.verdict()), (4072, Verdict::Optimal));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here allocates the planned memory or knows what it is for. Times are abstract, sizes are bytes,
//! and planners are deterministic unless they are given a budget of time.

#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod buffer;
pub mod csv;
mod error;
mod greedy;
mod load;
mod normal;
pub mod period;
pub mod placement;
mod plan;
mod problem;
mod skyline;
mod verify;

pub use self::buffer::Buffer;
pub use self::error::{BufferRef, CsvError, PlanError, ProblemColumn, ProblemError};
pub use self::greedy::greedy_by_size;
pub use self::load::{LoadProfile, LoadStep};
pub use self::plan::{Plan, Verdict};
pub use self::problem::{MAX_BUFFERS, Problem, ProblemBuilder};
pub use self::skyline::{BufferOrder, ORDERS, OrderKey, SearchBudget, Skyline};
pub use self::verify::verify;
