//! A period plan: the addresses of a period's blocks, request by request.

use super::search::{CONTEXT, fingerprint};
use super::{Period, PeriodRequest, PeriodSearch};
use std::collections::HashMap;

/// One request of a plan.
#[derive(Debug, Clone, Copy)]
struct PlannedRequest {
    size: usize,
    /// The address of its block; `None` for any.
    address: Option<usize>,
}

/// A plan for a [`Period`], and the position of the workload in it.
///
/// It begins at the period's turn, when the fewest blocks are live at other addresses than planned. A request
/// that is not the next one of the plan is a divergence: it has no address, and the next ones have none until
/// a context of sixteen requests is in the order of the plan again.
///
/// ```
/// use orlop_plan::period::{PeriodPlan, PeriodSearch};
///
/// let mut search = PeriodSearch::default();
/// for size in (1..=16).chain(1..=16) {
///     let number = search.log(size);
///     search.log_free(number);
/// }
/// let period = search.find().expect("it happened twice");
/// let mut plan = PeriodPlan::new(&period, (0..16).map(|index| Some(4096 * index)));
/// let mut request = |size| {
///     search.log(size);
///     plan.follow(&search)
/// };
/// assert_eq!([request(1), request(2)], [Some(0), Some(4096)]);
/// // A divergence: it has no address, nor has the next request.
/// assert_eq!([request(9), request(10)], [None, None]);
/// ```
#[derive(Debug)]
pub struct PeriodPlan {
    /// The requests, from the turn on.
    requests: Vec<PlannedRequest>,
    /// Whether the workload has reached the turn since the plan was made.
    has_begun: bool,
    /// The index of the next request, unless the workload has diverged.
    next: Option<usize>,
    /// The indices of requests by the context that ends with them.
    contexts: HashMap<u64, usize>,
}

impl PeriodPlan {
    /// Creates a plan for `period`, which ends with the workload's last request, with an address for each
    /// request.
    #[must_use]
    pub fn new(period: &Period, addresses: impl IntoIterator<Item = Option<usize>>) -> Self {
        let planned = |(request, address): (&PeriodRequest, Option<usize>)| PlannedRequest {
            size: request.key,
            address,
        };
        let mut requests: Vec<_> = period.requests.iter().zip(addresses).map(planned).collect();
        let length = requests.len();
        let turn = period.turn.min(length);
        requests.rotate_left(turn);
        let context = |end: usize| {
            let last = requests[..end].last_chunk::<CONTEXT>()?;
            Some((fingerprint(last.iter().map(|request| request.size)), end - 1))
        };
        // Of equal contexts, the first is kept.
        let contexts = (CONTEXT..=length).rev().filter_map(context).collect();
        let next = (length - turn).checked_rem(length);
        Self { requests, has_begun: false, next, contexts }
    }

    /// Returns the planned address for the last logged request; `None` for any.
    #[inline]
    pub fn follow(&mut self, search: &PeriodSearch) -> Option<usize> {
        let size = search.last_size()?;
        let fits = |&index: &usize| self.requests.get(index).is_some_and(|request| request.size == size);
        let index =
            self.next.filter(fits).or_else(|| self.contexts.get(&search.context()?).copied().filter(fits));
        self.next = index.map(|index| (index + 1) % self.requests.len());
        self.has_begun |= index == Some(0);
        self.requests.get(index?)?.address.filter(|_| self.has_begun)
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if it has no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns `true` if the last request was not as planned, so that a context is needed.
    #[must_use]
    pub fn has_diverged(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<PlannedRequest>()
            + self.contexts.capacity() * size_of::<(u64, usize)>()
    }
}
