//! File formats of histories, and what their readers have in common.
//!
//! | module | what | reads | writes |
//! |---|---|---|---|
//! | [`binary`] | orlop's own: compact, streamed, readable when cut off | yes | yes |
//! | [`csv`] | a line for each event, for scripts and spreadsheets | yes | yes |
//! | [`rmm`] | logs of the RAPIDS memory manager | yes | |
//! | [`chrome`] | traces of `torch.profiler` with `profile_memory=True` | yes | |
//! | `parquet` (feature `parquet`) | a table of events for databases | | yes |
//! | `sqlite` (feature `sqlite`) | the same table in an SQLite database | | yes |
//! | [`pprof`] | profiles of pprof: JAX's `device_memory_profile` | yes | yes |
//! | [`snapshot`] | PyTorch's memory snapshots, as pickle and as JSON | yes | yes |
//! | [`text`] | one line for each allocation and free: sizes and their order | yes | |
//! | [`perfetto`] | counters, and profiles of steps, for ui.perfetto.dev and chrome://tracing | | yes |
//!
//! Every reader accepts plain bytes, and those that gzip, zstd or xz compressed. Beside the history it keeps
//! one line, block or JSON string in memory. The size of each of those is limited, and so is the decompressed
//! size: a file of a few kilobytes cannot exhaust the memory ([`TraceError::Bomb`](crate::TraceError::Bomb)).
//! Inconsistencies in a file that is readable otherwise are reported as
//! [`HistoryWarning`](crate::history::HistoryWarning)s.

pub mod binary;
pub mod chrome;
pub mod csv;
mod detect;
mod device_numbers;
mod error_fields;
mod event_collector;
#[cfg(any(feature = "parquet", feature = "sqlite"))]
mod event_rows;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod rmm;
pub mod snapshot;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod table_rows;
pub mod text;

pub use self::detect::OtherFile;
pub(crate) use self::detect::probe;
pub use self::device_numbers::{DeviceLabel, device_number, numbered_device};
pub use self::error_fields::{BlockFault, EventField, Format};
use self::event_collector::AdmittedDevices;
#[cfg(test)]
pub(crate) use self::event_collector::by_device;
pub(crate) use self::event_collector::{EventCollector, MAX_DEVICES};
