//! How much of a device's memory is in use.

/// Counts the bytes of a device that are in use, up to its size.
#[derive(Debug)]
pub(crate) struct MemoryMeter {
    memory: u64,
    used: u64,
}

impl MemoryMeter {
    /// Creates a meter for `memory` bytes, none in use.
    pub(crate) fn new(memory: u64) -> Self {
        Self { memory, used: 0 }
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Adds `bytes` bytes. Returns `false`, and changes nothing, if the device has no more.
    pub(crate) fn try_add(&mut self, bytes: usize) -> bool {
        match self.used.checked_add(bytes as u64) {
            Some(used) if used <= self.memory => {
                self.used = used;
                true
            }
            _ => false,
        }
    }

    /// Subtracts `bytes` bytes.
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }
}
