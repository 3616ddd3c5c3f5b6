//! The clock that orders events.
//!
//! Changes of regions are recorded under locks and delivered later. Their times must be those of the
//! recording, by the same clock with which recorders stamp the events of blocks; and no observer may run
//! under a lock. So the clock belongs to the library, and observers that keep times use it.

use std::fmt;

/// The process's clock for events: the system's, or with feature `tsc` the processor's counter, which is
/// cheaper to read and monotonic across threads where the counters of processors are.
///
/// ```
/// use orlop_alloc::engine_support::EventClock;
///
/// let clock = EventClock::get();
/// let start = clock.ticks();
/// assert!(clock.nanoseconds(start, clock.ticks()) < 1_000_000_000);
/// ```
#[derive(Clone)]
pub struct EventClock(imp::Clock);

impl EventClock {
    /// Returns the clock. The first call calibrates it, which takes some milliseconds; region events have
    /// times from then on.
    #[must_use]
    pub fn get() -> &'static Self {
        imp::CLOCK.get_or_init(|| Self(imp::Clock::new()))
    }

    /// Returns the time in ticks, if [`EventClock::get`] was called before. Takes no lock, allocates nothing
    /// and calls no user code.
    #[inline]
    pub(super) fn ticks_if_used() -> Option<u64> {
        imp::CLOCK.get().map(Self::ticks)
    }

    /// Returns the time in ticks.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.0.raw()
    }

    /// Returns the nanoseconds from one time to a later one; zero if `to` is not later.
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

#[cfg(all(feature = "tsc", not(any(miri, loom))))]
mod imp {
    pub(super) use quanta::Clock;

    pub(super) static CLOCK: std::sync::OnceLock<super::EventClock> = std::sync::OnceLock::new();
}

/// The system's clock, in nanoseconds since the first use.
#[cfg(all(not(feature = "tsc"), not(any(miri, loom))))]
mod imp {
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(super) static CLOCK: OnceLock<super::EventClock> = OnceLock::new();

    #[derive(Clone)]
    pub(super) struct Clock {
        start: Instant,
    }

    impl Clock {
        pub(super) fn new() -> Self {
            Self { start: Instant::now() }
        }

        pub(super) fn raw(&self) -> u64 {
            u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
        }

        pub(super) fn delta_as_nanos(&self, from: u64, to: u64) -> u64 {
            to.saturating_sub(from)
        }
    }
}

/// Miri and loom have no processor counter: each reading advances the clock by a nanosecond.
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
