//! Histories in files: which formats there are, and what their readers have in common.
//!
//! | module | what | reads | writes |
//! |---|---|---|---|
//! | [`binary`] | our own: compact, streams, survives being cut off | yes | yes |
//! | [`csv`] | a line for each event, for scripts and spreadsheets | yes | yes |
//! | [`rmm`] | logs of RAPIDS' memory manager | yes | |
//! | [`chrome`] | `torch.profiler`'s traces with `profile_memory=True` | yes | |
//! | [`snapshot`] | PyTorch's memory snapshots, as pickle and as JSON | yes | yes |
//! | [`text`] | a line for each allocation and free: sizes and an order | yes | |
//! | [`perfetto`] | memory counters for ui.perfetto.dev and chrome://tracing | | yes |
//!
//! Every reader takes plain or gzip-compressed bytes, holds one line, block or JSON string at a time beside
//! the history that it makes, and bounds each of those, and what a compressed file unpacks to: a few
//! kilobytes cannot fill the memory ([`TraceError::Bomb`](crate::TraceError::Bomb)). What does not fit
//! together in a file that can be read otherwise is a [`HistoryWarning`](crate::history::HistoryWarning) of
//! the history.

pub mod binary;
pub mod chrome;
pub mod csv;
mod detect;
mod device_numbers;
mod error;
mod event_collector;
pub mod perfetto;
pub mod rmm;
pub mod snapshot;
mod table_rows;
pub mod text;

pub use self::device_numbers::{device_number, numbered_device};
pub use self::error::{BlockFault, EventColumn, Format, FormatError};
use self::event_collector::AdmittedDevices;
#[cfg(test)]
pub(crate) use self::event_collector::by_device;
pub(crate) use self::event_collector::{EventCollector, MAX_DEVICES};
