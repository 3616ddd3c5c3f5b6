//! Recordings of allocators: record what a program allocates, read and write recordings, and a model of them.
//!
//! | task | with |
//! |---|---|
//! | read any recording | [`History::read`](history::History::read) |
//! | read the recordings of a folder or archive | [`Recordings`] |
//! | read and write one format | [`formats`] |
//! | record what an allocator does now | [`recorder`] |
//! | look at events, segments, blocks and call sites | [`history`] |
//! | list what a program requested, in order | [`history::Workload`] |
//!
//! A [`History`](history::History) is the one form that every reader produces and every tool takes. The tools
//! themselves (simulation, comparison, reports) are in the crate `orlop-lab`.
//!
//! ```
//! use orlop_trace::history::{History, Workload};
//!
//! let history = History::parse("a,0,1000\na,1,500\nf,0\nf,1\n".as_bytes())?;
//! assert_eq!(Workload::of(&history.devices[0]).peak().0, 1500);
//! # Ok::<(), orlop_trace::TraceError>(())
//! ```

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod files;
pub mod formats;
pub mod history;
mod input;
pub mod recorder;
mod recordings;

pub use self::error::{Result, TraceError};
pub use self::files::check_output;
pub use self::input::open as open_input;
pub use self::recordings::{Recording, Recordings};
