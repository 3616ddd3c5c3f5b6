//! An adaptor that fails requests on purpose, for tests.
//!
//! "After any error the allocator works" is a promise about paths that a healthy machine never takes. This
//! adaptor takes them, and does so repeatably: whether the n-th call fails depends on n, the request and a
//! seed, never on time or on how threads interleave.

use super::name_over;
use crate::Refusal;
use crate::{Allocator, OutOfMemory, RawBlock, Request, Result, forward};
use orlop_core::SplitMix64;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// A rule by which requests fail. Calls are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The call with this number, once.
    Nth(u64),
    /// Every call whose number is a multiple.
    Every(NonZeroU64),
    /// This share of all calls (0 to 1), chosen by a hash of seed and call number.
    Probability {
        /// The share, from 0 (none) to 1 (all). NaN fails none.
        share: f64,
        /// The seed of the hash.
        seed: u64,
    },
    /// Requests for more bytes than this.
    LargerThan(usize),
}

impl Rule {
    fn applies(self, call: u64, bytes: usize) -> bool {
        match self {
            Self::Nth(number) => call == number,
            Self::Every(step) => call % step == 0,
            Self::Probability { share, seed } => uniform(seed, call) < share,
            Self::LargerThan(limit) => bytes > limit,
        }
    }
}

/// Returns a number in 0..1 for each call, from 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
fn uniform(seed: u64, call: u64) -> f64 {
    (SplitMix64::at(seed, call.wrapping_sub(1)).next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Fails some requests with [`Refusal::Injected`]; passes the others on.
///
/// A failed request never reaches the upstream. Frees always pass. No block grows in place: growth is a
/// request for a new block, to which the rules apply.
///
/// ```
/// use orlop_alloc::adaptor::{Failing, Rule};
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request};
///
/// let engine = Failing::new(Direct::new(System::new()), [Rule::Nth(2)]);
/// let allocator = engine.into_ref();
/// let outcome: Vec<bool> = (0..3).map(|_| allocator.allocate(&Request::new(64)).is_ok()).collect();
/// assert_eq!(outcome, [true, false, true]);
/// ```
#[derive(Debug)]
pub struct Failing<A> {
    inner: A,
    name: Box<str>,
    rules: Box<[Rule]>,
    calls: AtomicU64,
    fail_next: AtomicU64,
    injected: AtomicU64,
}

impl<A: Allocator> Failing<A> {
    /// Creates an adaptor over `inner` that fails requests to which any of `rules` applies, and those that
    /// [`Failing::fail_next`] counts.
    #[must_use]
    pub fn new(inner: A, rules: impl IntoIterator<Item = Rule>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            name: name_over("failing", &inner),
            inner,
            rules: rules.into_iter().collect(),
            calls: zero(),
            fail_next: zero(),
            injected: zero(),
        }
    }

    /// Fails the next `count` requests, whatever the rules say. Replaces the rest of an earlier call; zero
    /// ends it.
    pub fn fail_next(&self, count: u64) {
        self.fail_next.store(count, Ordering::Relaxed);
    }

    /// Returns the number of requests, failed ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of failed requests.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn fails(&self, request: &Request) -> bool {
        // Relaxed: a call's number is its place in the order of this counter alone.
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let take_one = |left: u64| left.checked_sub(1);
        self.fail_next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_ok()
            || self.rules.iter().any(|rule| rule.applies(call, request.bytes))
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it; some requests are refused.
unsafe impl<A: Allocator> Allocator for Failing<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if self.fails(request) {
            self.injected.fetch_add(1, Ordering::Relaxed);
            let mut report = OutOfMemory::new(Refusal::Injected, &self.name, self.inner.device(), request);
            report.reserved = self.inner.usage().reserved;
            return Err(report.into());
        }
        self.inner.allocate(request)
    }

    fn name(&self) -> &str {
        &self.name
    }

    forward!(inner; except grow_in_place, name);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::Null;
    use crate::engine::Direct;
    use crate::{AllocatorRef, Error};
    use orlop_core::Device;

    fn failing(rules: &[Rule]) -> AllocatorRef<Failing<Direct<Null>>> {
        let engine = Direct::new(Null::new(Device::CPU));
        Failing::new(engine, rules.iter().copied()).into_ref()
    }

    fn failed_calls(rules: &[Rule], calls: u64) -> Vec<u64> {
        let allocator = failing(rules);
        (1..=calls).filter(|_| allocator.allocate(&Request::new(8)).is_err()).collect()
    }

    #[test]
    fn by_number_and_by_step() {
        assert_eq!(failed_calls(&[Rule::Nth(3)], 10), [3]);
        let every = NonZeroU64::new(4).map(Rule::Every).unwrap();
        assert_eq!(failed_calls(&[every, Rule::Nth(3)], 10), [3, 4, 8]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of steps of safe code; half a minute under Miri")]
    fn by_probability_and_repeatably() {
        let rule = |share, seed| [Rule::Probability { share, seed }];
        // Miri takes more than a millisecond for each call.
        let calls: u64 = if cfg!(miri) { 100 } else { 5000 };
        let first = failed_calls(&rule(0.1, 7), calls);
        let tenth = usize::try_from(calls / 10).unwrap();
        assert!((tenth / 2..tenth * 2).contains(&first.len()), "{}", first.len());
        assert_eq!(first, failed_calls(&rule(0.1, 7), calls));
        assert_ne!(first, failed_calls(&rule(0.1, 8), calls));
        assert!(failed_calls(&rule(0.0, 7), calls).is_empty());
        assert!(failed_calls(&rule(f64::NAN, 7), calls).is_empty());
        assert_eq!(failed_calls(&rule(1.0, 7), calls).len(), tenth * 10);
    }

    #[test]
    fn by_size_and_on_demand_with_a_typed_error() {
        let allocator = failing(&[Rule::LargerThan(100)]);
        assert!(allocator.allocate(&Request::new(100)).is_ok());
        let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(101)) else {
            panic!("passed")
        };
        assert_eq!((report.refusal, report.requested), (Refusal::Injected, 101));
        allocator.fail_next(2);
        let outcome: Vec<_> = (0..3).map(|_| allocator.allocate(&Request::new(1)).is_ok()).collect();
        assert_eq!(outcome, [false, false, true]);
        assert_eq!((allocator.calls(), allocator.injected()), (5, 3));
        assert_eq!(allocator.stats().live(), 0);
    }
}
