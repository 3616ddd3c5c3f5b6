//! [`Races`]: the past accesses to simulated memory, and the races found.

use crate::driver::Driver;
use crate::memory::MemoryAccess;
use orlop_race::{AccessKind, AccessMap, HOST_QUEUE};
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
    fn add(&mut self, race: Race) {
        self.count += 1;
        if self.found.len() < KEPT {
            self.found.push(race);
        }
    }
}

impl Driver {
    /// Reports that two threads of a launch write the same bytes.
    pub(crate) fn report_race_within(&mut self, name: &Arc<str>, stream: u64, access: MemoryAccess) {
        let MemoryAccess { address, bytes, kind } = access;
        let record = AccessRecord { name: Arc::clone(name), stream, kind, address, bytes, time: self.now };
        self.races.add(Race { earlier: record.clone(), later: record });
    }

    /// Checks and records accesses of work just submitted to a queue, or made by the host.
    pub(crate) fn check_accesses(
        &mut self,
        name: &Arc<str>,
        queue: usize,
        stream: u64,
        accesses: &[MemoryAccess],
    ) {
        if accesses.is_empty() {
            return;
        }
        let work = self.order.submit(queue);
        for access in accesses {
            let later = AccessRecord {
                name: Arc::clone(name),
                stream,
                kind: access.kind,
                address: access.address,
                bytes: access.bytes,
                time: self.now,
            };
            for place in self.places(access.address, access.bytes) {
                let earlier = self.races.past.access(&self.order, place, access.kind, work, later.clone());
                if let Some((_, _, earlier)) = earlier {
                    self.races.add(Race { earlier, later: later.clone() });
                }
            }
        }
    }

    /// Checks and records an access of the host itself.
    pub(crate) fn host_access(&mut self, name: &str, access: MemoryAccess) {
        self.check_accesses(&Arc::from(name), HOST_QUEUE, HOST_STREAM, &[access]);
    }
}
