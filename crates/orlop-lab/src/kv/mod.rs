//! What a pool of KV memory would have held, reused and refused for the requests of a trace.
//!
//! | step | with |
//! |---|---|
//! | requests of a service | [`RequestTrace`] |
//! | the layer groups of a model, by name or from a file | [`KvModel`] |
//! | all requests at their times: bytes held and needed, waiting requests | [`Occupancy`] |
//! | one request after the other: tokens reused, causes of misses | [`Reuse`] |
//! | bytes of the same requests in the pages of other systems | [`PageScheme`] |
//! | all of it, with a verdict | [`KvReport`] |
//!
//! The replays run [`KvPool`](orlop_kv::KvPool) itself, over page ids without memory.

mod config;
mod kv_report;
mod model;
mod occupancy;
mod page_scheme;
mod request_trace;
mod reuse;

pub use self::kv_report::{KvReport, ReuseRow};
pub use self::model::{KvModel, ModelProblem};
pub use self::occupancy::{Occupancy, SchemePeak};
pub use self::page_scheme::PageScheme;
pub use self::request_trace::{LineProblem, RequestTrace, TraceRequest};
pub use self::reuse::{PoolSettings, Reuse};
