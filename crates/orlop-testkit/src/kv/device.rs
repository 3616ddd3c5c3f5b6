//! [`KvDevice`]: the memory that an engine's steps access.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;

/// A closed step: what its kernels find and leave in the slots of the device's memory. A slot has a stamp.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvLaunch {
    /// The number of the step.
    pub step: u64,
    /// The slots of pages that were handed out in the step. They are cleared on a stream of its own, which
    /// follows settled steps only.
    pub fresh: Vec<u64>,
    /// Slots that are copied before anything is written: from, to.
    pub copies: Vec<(u64, u64)>,
    /// Stamps that must be found before anything else is written.
    pub reads_before: Vec<(u64, u64)>,
    /// Stamps that are written.
    pub writes: Vec<(u64, u64)>,
    /// Stamps that must be found afterwards.
    pub reads_after: Vec<(u64, u64)>,
}

/// A device with memory. It runs each step as late as it may, and panics where a stamp is not the expected
/// one: a page was handed out too early, shared wrongly or not copied.
pub trait KvDevice: Debug + Send {
    /// Gives the device a closed step.
    fn launch(&mut self, launch: KvLaunch);

    /// Runs the oldest step, and returns its number; `None` if no step is left.
    fn settle(&mut self) -> Option<u64>;

    /// Writes stamps at once, on a stream that follows settled steps only.
    fn write(&mut self, stamps: &[(u64, u64)]);

    /// Reads slots at once, on a stream that follows settled steps only. A slot without a stamp has any
    /// value.
    fn read(&mut self, slots: &[u64]) -> Vec<u64>;
}

/// The stamp of a cleared slot.
pub const CLEARED: u64 = 0xDEAD;

/// A device in host memory, of any size.
#[derive(Debug, Default)]
pub struct HostKvDevice {
    memory: HashMap<u64, u64>,
    in_flight: VecDeque<KvLaunch>,
}

impl HostKvDevice {
    fn stamp(&self, slot: u64) -> u64 {
        self.memory.get(&slot).copied().unwrap_or(CLEARED)
    }

    fn check(&self, reads: &[(u64, u64)], step: u64) {
        for &(slot, expected) in reads {
            assert_eq!(self.stamp(slot), expected, "slot {slot} in step {step}");
        }
    }
}

impl KvDevice for HostKvDevice {
    fn launch(&mut self, launch: KvLaunch) {
        self.memory.extend(launch.fresh.iter().map(|&slot| (slot, CLEARED)));
        self.in_flight.push_back(launch);
    }

    fn settle(&mut self) -> Option<u64> {
        let launch = self.in_flight.pop_front()?;
        let copied = launch.copies.iter().map(|&(from, to)| (to, self.stamp(from)));
        let copied: Vec<(u64, u64)> = copied.collect();
        self.memory.extend(copied);
        self.check(&launch.reads_before, launch.step);
        self.memory.extend(launch.writes);
        self.check(&launch.reads_after, launch.step);
        Some(launch.step)
    }

    fn write(&mut self, stamps: &[(u64, u64)]) {
        self.memory.extend(stamps.iter().copied());
    }

    fn read(&mut self, slots: &[u64]) -> Vec<u64> {
        slots.iter().map(|&slot| self.stamp(slot)).collect()
    }
}
