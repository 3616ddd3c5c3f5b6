//! Analysis of recordings: where memory is used, what other settings would have cost, and what changed
//! between two runs.
//!
//! | question | with |
//! |---|---|
//! | what happened, which setting helps, what to do next? | [`verdict`] |
//! | what does the message of a failed request mean? | [`oom_message`] |
//! | where is memory used, what does fragmentation cost, why did a request fail? | [`analyze`] |
//! | what is the memory: parameters, gradients, activations? | [`category`] |
//! | what would an allocator have done with the same requests? | [`simulate`] |
//! | which settings would have been better, and what would have fitted? | [`what_if`] |
//! | what grew between two runs, and is it more than allowed? | [`compare`] |
//! | which rank of a program differs, and by what? | [`ranks`] |
//! | what would a larger batch or a longer sequence need? | [`fit`] |
//! | how does a recording look over time? | [`report`] |
//! | what would a static plan of a recording or a graph take, and how does it look? | [`plan`] |
//! | what would a pool of KV memory have held, reused and refused for these requests? | [`kv`] |
//! | how fast does a CPU allocator replay a trace, and in how much memory? | [`cpu_bench`] |
//!
//! Every answer comes from a [`History`](orlop_trace::history::History), whichever format it was read from,
//! except those of [`cpu_bench`], which replays the plain [`Trace`](orlop_trace::formats::text::Trace), those
//! of [`kv`], which replays requests, and plans of other problems.
//!
//! ```
//! use orlop_lab::simulate::{AllocatorRules, Simulation};
//! use orlop_trace::history::{History, Workload};
//!
//! let history = History::parse("a,0,1000\na,1,500\nf,0\nf,1\n".as_bytes())?;
//! let work = Workload::of(&history.devices[0]);
//! let outcome = Simulation::new(&work).run(&AllocatorRules::torch("expandable_segments:True")?);
//! assert_eq!((outcome.peak_live, outcome.peak_reserved), (1500, 2 << 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod analyze;
pub mod category;
pub mod compare;
pub mod cpu_bench;
mod error;
pub mod fit;
mod html;
pub mod kv;
pub mod oom_message;
pub mod plan;
pub mod ranks;
pub mod report;
pub mod simulate;
pub mod verdict;
pub mod what_if;

pub use self::error::{LabError, Result};
