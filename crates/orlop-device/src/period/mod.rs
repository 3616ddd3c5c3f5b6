//! A workload that repeats: its requests are logged, its period is found, and its blocks get planned places.
//!
//! | module | what it holds |
//! |---|---|
//! | `log` | the requests of one stream, the period in them, and where in the period the stream is |
//! | `plan` | places for the blocks of a period, and blocks from those places |

mod log;
mod plan;

pub(crate) use self::log::StreamPeriod;
