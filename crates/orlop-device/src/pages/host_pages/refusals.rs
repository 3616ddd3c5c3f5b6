//! A system that refuses, for tests; elsewhere nothing.

/// Which of the next calls that change mappings are refused: a bit for each.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    #[cfg(test)]
    calls: std::sync::atomic::AtomicU64,
}

#[cfg(test)]
impl Refusals {
    pub(super) fn set(&self, calls: u64) {
        self.calls.store(calls, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether the next call is refused.
    pub(super) fn next(&self) -> bool {
        // Under the lock of the memory: nobody comes in between.
        let calls = self.calls.load(std::sync::atomic::Ordering::Relaxed);
        self.set(calls >> 1);
        calls & 1 != 0
    }
}

#[cfg(not(test))]
impl Refusals {
    pub(super) fn next(&self) -> bool {
        false
    }
}
