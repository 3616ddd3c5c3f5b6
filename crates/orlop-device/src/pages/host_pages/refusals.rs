//! Refusals of the system, injected by tests; otherwise nothing.

/// The next calls that change mappings which are refused: a bit for each.
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

    /// Returns `true` if the next call is to be refused.
    pub(super) fn next(&self) -> bool {
        // Called under the lock of the memory, so the two accesses need not be one.
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
