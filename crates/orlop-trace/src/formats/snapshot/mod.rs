//! PyTorch's memory snapshots, read and written.
//!
//! `torch.cuda.memory._dump_snapshot` writes a pickle; tools write the same as JSON. Both become a
//! [`History`], and any history can be written as either, so that a recording of any allocator opens in
//! [pytorch.org/memory_viz](https://pytorch.org/memory_viz).
//!
//! | part | what |
//! |---|---|
//! | `pickle`, `json` | the two forms: each says how to get at values, records and lists |
//! | `value`, `records`, `words` | what a snapshot consists of, once for both |
//! | `build` | records put in order and checked |
//! | `write` | a history as a snapshot, once for both |
//!
//! A snapshot is a dict of `segments` (each with its `blocks`), `device_traces` (a list of events for each
//! device), `allocator_settings` and `external_annotations`. What else newer versions write is passed over.
//! Source: `Snapshot` in `torch/cuda/_memory_viz.py`, `torch/csrc/cuda/Module.cpp`.
//!
//! [`History`]: crate::history::History

mod build;
mod error;
mod json;
mod pickle;
mod records;
mod value;
mod words;
mod write;

pub use self::error::SnapshotError;
pub(crate) use self::json::read as read_json;
pub(crate) use self::pickle::read as read_pickle;
pub use self::write::{write_json, write_pickle};
