//! Allocation traces: reading them, describing them, and replaying them through any allocator.
//!
//! A trace is what a real program asked of its allocator, in order. It answers what a synthetic benchmark
//! cannot: what this program would cost, in time and in memory, under another allocator or other settings.
//!
//! | step | what | with |
//! |---|---|---|
//! | read | any recording: PyTorch memory snapshots, traces | [`history::History`] |
//! | write | what pytorch.org/memory_viz opens | [`snapshot`] |
//! | read | text, plain or gzip, one operation a line | [`Operations`], [`Trace`] |
//! | describe | sizes, lifetimes, peak | [`TraceInfo`] |
//! | replay | time, reserved memory, page faults | [`Replay`], [`ReplayReport`] |
//! | show | every block over time, on one page | [`report`] |
//! | record | what an allocator does now | [`recorder`] |
//! | convert | histories in several files' formats | [`history`], [`formats`] |
//! | search | the smallest fixed pool that holds it | [`smallest_pool`] |
//!
//! A [`history`] tells more: addresses, segments, call sites. What it says about where the bytes went is the [`lab`].
//!
//! ```
//! use orlop_alloc::backing::System;
//! use orlop_alloc::bfc::Bfc;
//! use orlop_trace::{Replay, Trace};
//!
//! let trace = Trace::parse("a,0,1000\na,1,500\nf,0\nf,1\n".as_bytes())?;
//! assert_eq!(trace.peak().bytes, 1500);
//! let report = Replay::new(&trace).repeat(3).run(&Bfc::builder(System::new()).build().erase())?;
//! assert_eq!(report.operations, 4);
//! assert!(report.ratio >= 1.0);
//! # Ok::<(), orlop_trace::TraceError>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod files;
mod format;
pub mod formats;
pub mod history;
mod info;
mod input;
pub mod lab;
mod pool;
mod process;
pub mod recorder;
mod replay;
pub mod report;
pub mod snapshot;
mod trace;
pub mod what_if;

pub use self::error::{Field, Result, TraceError};
pub use self::files::check_output;
pub use self::format::{MAX_LINE, Operation, Operations};
pub use self::info::{Lifetimes, SizeBucket, TraceInfo};
pub use self::pool::{SmallestPool, replay_in_smallest_pool, smallest_pool};
pub use self::replay::{Pass, Replay, ReplayReport, Summary, Touch, UnknownTouch};
pub use self::trace::{Peak, ReplayStep, Trace};
