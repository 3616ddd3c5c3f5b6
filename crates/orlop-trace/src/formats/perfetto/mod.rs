//! Traces for ui.perfetto.dev and chrome://tracing: memory over time, as counters and marks.
//!
//! The file is in [Chrome's JSON format][format]. Each device is a process with these tracks:
//!
//! | track | what |
//! |---|---|
//! | `live bytes` | requested bytes of live blocks, a series for each memory kind |
//! | `reserved bytes` | bytes reserved from the device, if the history records regions |
//! | `pending bytes` | freed bytes that a stream may still use, if the history records completions |
//! | `external bytes` | mapped files and other external memory, if the history records it |
//! | `out of memory` | an instant for each failed request |
//! | annotations | an instant for each annotation and snapshot |
//! | `blocks` | a slice from each allocation to its free, with [`blocks`](PerfettoWriter::blocks) |
//!
//! Times are relative to the first event of any device. Blocks that were live at the start are counted from
//! there on.
//!
//! [`write_steps`] writes a profile of steps instead: a slice for each step, with its time on the host and
//! its bytes.
//!
//! [format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

mod counts;
mod entry;
mod steps;
mod tracks;
mod writer;

pub use self::steps::write_steps;
pub use self::writer::{PerfettoWriter, write_perfetto};
