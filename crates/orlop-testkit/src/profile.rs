//! [`SuiteProfile`]: guarantees of an allocator beyond its trait.

use orlop_core::StreamId;

/// The guarantees of an allocator that the suite checks.
///
/// The suite queries the allocator itself for size tracking, raw deleters, opaque handles and host access. No
/// profile exempts from alignments: all allocators must support up to 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuiteProfile {
    /// Freed memory is reused immediately, so that a steady loop needs bounded memory.
    pub reuses: bool,
    /// With no live block, `trim(0)` leaves nothing reserved.
    pub trims_to_zero: bool,
    /// Requests may fail for a limit of the allocator, although the backing has memory.
    pub limited: bool,
    /// Bytes are counted (not [`AllocatorRef::with_statistics`](orlop_alloc::AllocatorRef::with_statistics)
    /// with `counted: false`).
    pub counted: bool,
    /// The streams of the suite, by their numbers in its programs; the first is the host's.
    pub streams: [StreamId; 10],
}

impl SuiteProfile {
    /// Returns a profile with all guarantees: reuse, full trim, statistics, and failures only of the backing.
    #[must_use]
    pub const fn strict() -> Self {
        let mut streams = [StreamId::HOST; 10];
        let mut number = 1;
        while number < streams.len() {
            streams[number] = StreamId::from_raw(number as u64);
            number += 1;
        }
        Self { reuses: true, trims_to_zero: true, limited: false, counted: true, streams }
    }

    /// Sets the streams from the first on: those of a device, where numbers alone are unknown.
    #[must_use]
    pub const fn streams(mut self, streams: [StreamId; 9]) -> Self {
        let mut number = 0;
        while number < streams.len() {
            self.streams[number + 1] = streams[number];
            number += 1;
        }
        self
    }

    /// Returns the stream that a program's number stands for.
    #[must_use]
    pub fn stream(&self, number: u64) -> StreamId {
        let found = usize::try_from(number).ok().and_then(|number| self.streams.get(number));
        found.copied().unwrap_or(StreamId::from_raw(number))
    }

    /// Removes the guarantee of immediate reuse (arenas).
    #[must_use]
    pub const fn without_reuse(mut self) -> Self {
        self.reuses = false;
        self
    }

    /// Allows memory to stay reserved after `trim(0)`.
    #[must_use]
    pub const fn without_full_trim(mut self) -> Self {
        self.trims_to_zero = false;
        self
    }

    /// Allows failures for a limit of the allocator.
    #[must_use]
    pub const fn limited(mut self) -> Self {
        self.limited = true;
        self
    }

    /// Removes the guarantee of byte statistics.
    #[must_use]
    pub const fn uncounted(mut self) -> Self {
        self.counted = false;
        self
    }
}
