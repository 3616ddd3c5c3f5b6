//! How much of a device is held.

/// Bytes of a device that are held, and the most that were.
#[derive(Debug)]
pub(crate) struct MemoryMeter {
    memory: u64,
    used: u64,
    peak: u64,
}

impl MemoryMeter {
    /// Nothing of so many bytes.
    pub(crate) fn new(memory: u64) -> Self {
        Self { memory, used: 0, peak: 0 }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// Takes so many bytes more; false, and nothing has changed, if there are not so many.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        match self.used.checked_add(bytes as u64) {
            Some(used) if used <= self.memory => {
                self.used = used;
                self.peak = self.peak.max(used);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }
}
