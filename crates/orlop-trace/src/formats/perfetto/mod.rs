//! Traces for ui.perfetto.dev and chrome://tracing: what memory did over time, as counters and marks.
//!
//! The file is of [Chrome's JSON format][format]. Each device is a process with these tracks:
//!
//! | track | what |
//! |---|---|
//! | `live bytes` | bytes in blocks, as asked for, a series for each memory kind |
//! | `reserved bytes` | bytes that the allocator holds from the device, where the history tells |
//! | `pending bytes` | bytes given back that a stream may still use, where the history tells |
//! | `out of memory` | an instant for each failed request |
//! | annotations | an instant for each annotation and snapshot |
//! | `blocks` | a slice from each allocation to its free, if [`blocks`](PerfettoWriter::blocks) asks for them |
//!
//! Times count from the first event of any device. Blocks of the start are in the counters from there on.
//!
//! [format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

mod counts;
mod entry;
mod tracks;
mod writer;

pub use self::writer::{PerfettoWriter, write_perfetto};
