//! [`Pool`]: the figures of a memory pool.

use std::collections::BTreeSet;

/// A memory pool of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    /// Destroyed by the program, with memory still in use.
    pub(crate) is_destroyed: bool,
    pub(crate) threshold: u64,
    /// Bytes in allocations, and bytes kept for later ones.
    pub(crate) used: u64,
    pub(crate) kept: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved_high: u64,
    /// The three attributes that allow reuse, which the simulation accepts and does not need.
    pub(crate) reuse: [i32; 3],
    /// The other devices that can access its memory.
    pub(crate) peers: BTreeSet<usize>,
}

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool) -> Self {
        Self {
            device,
            is_default,
            is_destroyed: false,
            threshold: 0,
            used: 0,
            kept: 0,
            used_high: 0,
            reserved_high: 0,
            reuse: [1; 3],
            peers: BTreeSet::new(),
        }
    }

    /// Returns the bytes in allocations and those kept for later ones.
    pub(crate) fn reserved(&self) -> u64 {
        self.used + self.kept
    }
}
