//! The race check of every access to simulated memory.

use crate::driver::Driver;
use crate::memory::MemoryAccess;
use crate::state::races::{AccessRecord, HOST_STREAM, Race};
use orlop_race::HOST_QUEUE;
use std::sync::Arc;

impl Driver {
    /// Reports that two threads of a launch write the same bytes.
    pub(crate) fn report_race_within(
        &mut self,
        name: &Arc<str>,
        stream: u64,
        race: (MemoryAccess, MemoryAccess),
    ) {
        let record = |MemoryAccess { address, bytes, kind }| AccessRecord {
            name: Arc::clone(name),
            stream,
            kind,
            address,
            bytes,
            time: self.now,
        };
        let (earlier, later) = (record(race.0), record(race.1));
        self.races.add(Race { earlier, later });
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
