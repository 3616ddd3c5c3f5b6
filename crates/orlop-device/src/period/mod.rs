//! A workload that repeats: its requests are logged, its period is found, and its blocks get planned places.
//!
//! | module | what it holds |
//! |---|---|
//! | `stream_period` | the logged requests of one stream, and the plan for their period |
//! | `plan` | places for the blocks of a period, and blocks from those places |

mod plan;
mod stream_period;

pub(crate) use self::stream_period::StreamPeriod;
