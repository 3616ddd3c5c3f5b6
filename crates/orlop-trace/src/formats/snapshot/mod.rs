//! PyTorch's memory snapshots, read and written.
//!
//! `torch.cuda.memory._dump_snapshot` writes a pickle; tools write the same as JSON. Both are read as a
//! [`History`], and any history can be written as either, so that a recording of any allocator opens in
//! [pytorch.org/memory_viz](https://pytorch.org/memory_viz).
//!
//! | part | what |
//! |---|---|
//! | `pickle`, `json` | the two formats: access to values, records and lists |
//! | `value`, `records`, `words` | the contents of a snapshot, shared by both formats |
//! | `build` | building a history from records |
//! | `pools` | the private pools of events |
//! | `releases` | the releases of PyTorch that a snapshot can be of |
//! | `write` | writing a history, shared by both formats |
//!
//! A snapshot is a dict of `segments` (each with its `blocks`), `device_traces` (a list of events for each
//! device), `allocator_settings` and `external_annotations`. Other keys of newer versions are ignored.
//! Source: `Snapshot` in `torch/cuda/_memory_viz.py`, `torch/csrc/cuda/Module.cpp`.
//!
//! [`History`]: crate::history::History

mod build;
mod json;
mod pickle;
mod pools;
mod records;
mod releases;
mod value;
mod words;
mod write;

pub(crate) use self::json::read as read_json;
pub(crate) use self::pickle::read as read_pickle;
pub use self::write::{write_json, write_pickle};
