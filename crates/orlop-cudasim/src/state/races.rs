//! [`Races`]: the past accesses to simulated memory, and the races found.

use orlop_race::{AccessKind, AccessMap};
use std::sync::Arc;

/// The most races that are kept in full; later ones are counted.
const KEPT: usize = 1000;

/// An access, as a report shows it.
#[derive(Debug, Clone)]
pub(crate) struct AccessRecord {
    /// The call or kernel that made it.
    pub(crate) name: Arc<str>,
    /// The stream's handle; `HOST_STREAM` for the host.
    pub(crate) stream: u64,
    pub(crate) kind: AccessKind,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// When it was submitted.
    pub(crate) time: u64,
}

/// The stream of the host's own accesses in reports.
pub(crate) const HOST_STREAM: u64 = u64::MAX;

#[derive(Debug, Clone)]
pub(crate) struct Race {
    pub(crate) earlier: AccessRecord,
    pub(crate) later: AccessRecord,
}

#[derive(Debug, Default)]
pub(crate) struct Races {
    /// Keyed by where the bytes are, not by their virtual address: aliases are the same memory.
    pub(crate) past: AccessMap<AccessRecord>,
    pub(crate) found: Vec<Race>,
    pub(crate) count: u64,
}

impl Races {
    /// Adds a race, in full if there is room.
    pub(crate) fn add(&mut self, race: Race) {
        self.count += 1;
        if self.found.len() < KEPT {
            self.found.push(race);
        }
    }
}
