//! Periods: the detection of workloads that repeat, and the prediction of their requests.
//!
//! A **period** is a number of requests after which the same requests repeat: a token, a training step. With
//! it, an allocator knows the sizes and the lifetimes of the next period's blocks in advance, and can plan
//! their addresses ([`placement`](crate::placement)). Such a **period plan** is a prediction. When the
//! workload does something else, that is a **divergence**. The plan finds the point where the workload
//! rejoins the period by the **context**: the last requests in the order of the plan.
//!
//! The module makes no decision about memory. An allocator checks each prediction before it uses it, so that
//! a wrong one costs time and never correctness.
//!
//! | type | what it does |
//! |---|---|
//! | [`PeriodSearch`] | logs requests and searches the log for a period on demand |
//! | [`PeriodLearner`] | detects a period while it happens, from requests and frees |
//! | [`Period`], [`PeriodRequest`] | a period that was found |
//! | [`PeriodPlan`] | returns the address of the next block, and recovers from divergences by context |
//!
//! # Why two detectors
//!
//! Neither can replace the other.
//!
//! * [`PeriodSearch`] compares sizes only. Frees may have any order, since a lifetime is only a prediction
//!   for the planner; a period that has begun to repeat is found before it has happened twice. A search takes
//!   time in proportion to the log, so it needs an occasion: for a device, that pages had to be moved. It
//!   stores 16 bytes for each request, and continues to log while a plan is in force.
//! * [`PeriodLearner`] has no such occasion: the memory of a thread is merely larger than necessary. So it
//!   checks at each event, in constant time. Periods begin where the fewest bytes are live, because a plan
//!   from there needs the least memory, and requests *and* frees must repeat in the same order, because its
//!   plan is served strictly in turn and waits for frees. It stores 8 to 12 bytes for each request, and
//!   nothing once the period is known.

mod learner;
mod plan;
mod search;

pub use self::learner::PeriodLearner;
pub use self::plan::PeriodPlan;
pub use self::search::PeriodSearch;

use crate::Buffer;

/// One request of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeriodRequest {
    /// Requests with equal keys are equal: a size class for [`PeriodLearner`], a size in bytes for
    /// [`PeriodSearch`].
    pub key: usize,
    /// The size of its block in bytes, and its lifetime within the period; `None` if it cannot be planned,
    /// because the block outlives the period.
    pub buffer: Option<Buffer>,
}

/// A period that was found in a [`PeriodSearch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// The number of its first request.
    first: u32,
    is_confirmed: bool,
    /// The index of the request before which the fewest bytes are live: where a plan begins.
    turn: usize,
    requests: Vec<PeriodRequest>,
}

impl Period {
    /// Returns its requests, in order of time. The last one is the last request of the log.
    ///
    /// Lifetimes are counted in requests from the period's turn on, the request before which the fewest bytes
    /// are live. A block that is live there has the lifetime [`Period::ALWAYS`].
    #[must_use]
    pub fn requests(&self) -> &[PeriodRequest] {
        &self.requests
    }

    /// Returns the request with this number in the log; `None` if the period has none.
    #[must_use]
    pub fn request(&self, number: u32) -> Option<&PeriodRequest> {
        self.requests.get(number.wrapping_sub(self.first) as usize)
    }

    /// Returns `true` if it happened twice. If not, its second time had begun.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// The lifetime of a block that shares its addresses with no other.
    pub const ALWAYS: std::ops::Range<u64> = 0..u32::MAX as u64;
}
