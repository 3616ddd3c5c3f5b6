//! Periods: how to find out that a workload repeats, and how to predict it from then on.
//!
//! A **period** is a number of requests after which the same requests come again: a token, a training step.
//! An allocator that knows it knows the sizes and the lifetimes of the blocks of the next one, and can plan
//! their addresses ([`placement`](crate::placement)). Such a **period plan** is a prediction: the workload
//! may do something else at any time. That is a **divergence**. Where it has rejoined the period is known
//! again from the **context**: the last requests in the order of the plan.
//!
//! Nothing here decides about memory. An allocator checks each prediction before it uses it, so that a wrong
//! one costs time and never correctness.
//!
//! | type | what it does |
//! |---|---|
//! | [`PeriodSearch`] | logs requests and searches the log for a period when it is asked to |
//! | [`PeriodLearner`] | notices a period while it happens, from requests and frees |
//! | [`Period`], [`PeriodRequest`] | a period that was found |
//! | [`PeriodPlan`] | says where the next block belongs, and recovers from divergences by context |
//!
//! # Why two detectors
//!
//! They answer different questions, and neither does the other's work as well.
//!
//! * [`PeriodSearch`] compares sizes only. Frees may come in any order, since a lifetime is a prediction for
//!   the planner and no more; a period that has begun to repeat is found before it has happened twice. A
//!   search takes time in proportion to the log, so it needs an occasion: for a device, that pages had to be
//!   moved. It keeps 16 bytes for each request, and goes on logging while a plan is in force.
//! * [`PeriodLearner`] has no occasion: the memory of a thread just stays larger than it had to be. So it
//!   checks with each event, in constant time. Periods begin where the fewest bytes are live, because a plan
//!   from there needs the least memory, and requests *and* frees must repeat in the same order, because its
//!   plan is served strictly in turn and waits for frees. It keeps 8 to 12 bytes for each request, and
//!   nothing once it is done.

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
    /// Requests are alike if these are: a size class for [`PeriodLearner`], a size in bytes for
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
    /// Its requests, in order of time. The last one is the last request of the log.
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

    /// Whether it happened twice. If not, its second time had begun.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// The lifetime of a block that shares its addresses with no other.
    pub const ALWAYS: std::ops::Range<u64> = 0..u32::MAX as u64;
}
