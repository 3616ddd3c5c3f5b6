//! The period of the watched stream: the search for it, the plan once there is one, and the pages of the
//! plan.
//!
//! Pages are moved where memory is fragmented, and a program that repeats itself fragments it again in each
//! period. So the requests of the stream are logged, and when pages had to be moved the log is searched for a
//! period (see [`orlop_plan::period`]). What outlives a period gets an address of its own.
//!
//! Nothing here decides about memory: the engine places a block where it was planned if that is free (see
//! [`plan`](super::plan)), and where it fits best if not.

use orlop_plan::period::{Period, PeriodPlan, PeriodSearch};
use std::ops::Range;

/// The logged requests of one stream, and the plan for its period.
#[derive(Debug, Default)]
pub(crate) struct StreamPeriod {
    search: PeriodSearch,
    plan: Option<PeriodPlan>,
    /// Whether pages were moved for the last request.
    pub(crate) has_moved: bool,
    /// Whether pages were ever moved for this stream: from then on every request has to be logged.
    pub(crate) needs_all: bool,
    /// The bytes that may be reserved for the plan.
    pub(crate) allowed: u64,
    /// The pages that the plan needs, in order of address.
    footprint: Vec<Range<usize>>,
}

impl StreamPeriod {
    /// Logs a request of `size` bytes. Returns its number, and where its block belongs by the plan.
    #[inline]
    pub(crate) fn log_request(&mut self, size: usize) -> (u32, Option<usize>) {
        let number = self.search.log(size);
        (number, self.plan.as_mut().and_then(|plan| plan.follow(&self.search)))
    }

    /// Logs that the block of a request was freed.
    #[inline]
    pub(crate) fn log_free(&mut self, number: u32) {
        self.search.log_free(number);
    }

    /// Returns an empty log and no plan. Numbers continue, because live blocks have numbers of this log.
    pub(crate) fn cleared(&self) -> Self {
        Self { search: self.search.restart(), ..Self::default() }
    }

    /// Returns `true` if there is a plan.
    #[inline]
    pub(crate) fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    /// Call after pages were moved. Returns a period if it was time to search for one, and there is one.
    pub(super) fn find(&mut self) -> Option<Period> {
        if self.search.take_turn() { self.search.find() } else { None }
    }

    /// Notes that a period that was found cannot be planned: the next search is later.
    pub(crate) fn postpone(&mut self, period: &Period) {
        self.search.reject(period);
    }

    /// Follows a plan from its beginning. It needs the pages of `footprint`, and `allowed` bytes may be
    /// reserved for it.
    pub(crate) fn follow(&mut self, plan: PeriodPlan, footprint: Vec<Range<usize>>, allowed: u64) {
        // It improves for two periods after it has begun, and then no more.
        self.search.pause(plan.len().saturating_mul(3));
        (self.plan, self.footprint, self.allowed) = (Some(plan), footprint, allowed);
    }

    /// Returns the first part of `addresses` that no block of the plan needs.
    pub(crate) fn outside(&self, addresses: Range<usize>) -> Range<usize> {
        let mut part = addresses;
        let first = self.footprint.partition_point(|pages| pages.end <= part.start);
        for pages in &self.footprint[first..] {
            if pages.start > part.start {
                part.end = part.end.min(pages.start);
                break;
            }
            part.start = pages.end.min(part.end);
        }
        part
    }

    /// Returns the bytes of the log and the plan.
    pub(crate) fn bytes(&self) -> usize {
        self.search.bytes()
            + self.plan.as_ref().map_or(0, PeriodPlan::bytes)
            + self.footprint.capacity() * size_of::<Range<usize>>()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "stream_period_tests.rs"]
mod tests;
