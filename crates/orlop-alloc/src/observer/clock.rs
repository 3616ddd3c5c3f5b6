//! The clock by which events are in order.
//!
//! Changes of regions are noted with locks held, and told later. Their times must be those at which they were noted, by the
//! clock that a recorder stamps the blocks' events with; and no code of an observer may run under a lock. So the clock is
//! the library's, and observers that keep times go by it.

use std::fmt;

/// The process's clock of events: monotonic over all threads where the processor's counters are, and cheap to read.
///
/// ```
/// use orlop_alloc::EventClock;
///
/// let clock = EventClock::get();
/// let start = clock.ticks();
/// assert!(clock.nanoseconds(start, clock.ticks()) < 1_000_000_000);
/// ```
#[derive(Clone)]
pub struct EventClock(imp::Clock);

impl EventClock {
    /// The clock. Finding out how long a tick is takes the first call some milliseconds; regions have times from then on.
    #[must_use]
    pub fn get() -> &'static Self {
        imp::CLOCK.get_or_init(|| Self(imp::Clock::new()))
    }

    /// The time, if anybody has asked for the clock before. Takes no lock, allocates nothing and calls nobody.
    #[inline]
    pub(super) fn ticks_if_used() -> Option<u64> {
        imp::CLOCK.get().map(Self::ticks)
    }

    /// The time, in ticks.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.0.raw()
    }

    /// How long it is from one time to a later one; zero if it is not later.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self, from: u64, to: u64) -> u64 {
        self.0.delta_as_nanos(from, to)
    }
}

impl fmt::Debug for EventClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventClock")
    }
}

#[cfg(not(any(miri, loom)))]
mod imp {
    pub(super) use quanta::Clock;

    pub(super) static CLOCK: std::sync::OnceLock<super::EventClock> = std::sync::OnceLock::new();
}

/// The interpreter and the model checker have no counter of the processor's: a nanosecond passes with each look.
#[cfg(any(miri, loom))]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) static CLOCK: OnceLock<super::EventClock> = OnceLock::new();

    #[derive(Clone)]
    pub(super) struct Clock;

    impl Clock {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn raw(&self) -> u64 {
            static TICKS: AtomicU64 = AtomicU64::new(0);
            TICKS.fetch_add(1, Ordering::Relaxed)
        }

        pub(super) fn delta_as_nanos(&self, from: u64, to: u64) -> u64 {
            to.saturating_sub(from)
        }
    }
}
