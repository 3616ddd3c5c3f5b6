//! A simulation: one workload under one allocator's rules.

use super::conditions::RunConditions;
use super::rules::AllocatorRules;
use super::simulator::{MemoryCapacity, Shortage, Simulator, SimulatorStats, UNLIMITED};
use orlop_trace::history::{WorkBlock, WorkStep, Workload};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A replay of a [`Workload`]: the production engine, over addresses instead of memory.
///
/// Blocks that were live at the start are allocated first, in order of address. The replay ends with the
/// first request that fails. A request that failed in the recording is made too; if it succeeds, the replay
/// continues.
#[derive(Debug, Clone, Copy)]
pub struct Simulation<'a> {
    work: &'a Workload,
    capacity: MemoryCapacity,
    /// The events before which the cache is emptied.
    cache_releases: &'a [u32],
    passes: usize,
    /// The peak of live bytes, if it is known.
    peak_live: Option<u64>,
}

/// The result of a [`Simulation`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SimulationOutcome {
    /// The allocator.
    pub rules: String,
    /// The settings for `PYTORCH_CUDA_ALLOC_CONF`, if it is PyTorch's allocator.
    pub conf: Option<String>,
    /// The device's memory in bytes; `None` if it was not limited.
    pub memory: Option<u64>,
    /// The peak of live bytes, as requested.
    pub peak_live: u64,
    /// The peak of reserved bytes.
    pub peak_reserved: u64,
    /// `peak_reserved` over `peak_live`; 1 if nothing was ever live.
    pub ratio: f64,
    /// Reserved bytes at the end.
    pub reserved: u64,
    /// The number of retries: requests that were served only after all cached memory was released.
    pub retries: u64,
    /// The number of allocations from the device.
    pub device_allocations: u64,
    /// Bytes of pages that were moved.
    pub remapped: u64,
    /// Bytes of pages that were moved in the last pass.
    pub remapped_last: u64,
    /// The number of times a stream took memory of another stream after waiting for it.
    pub steals: u64,
    /// The number of times a stream waited, on the device, for memory of another stream.
    pub stream_waits: u64,
    /// The request that failed.
    pub out_of_memory: Option<FailedRequest>,
    /// Allocations and frees, without those of the blocks at the start.
    pub operations: u64,
    /// Requests and uses of streams beyond [`MAX_STREAMS`](super::MAX_STREAMS), which were replayed as one
    /// stream.
    pub folded: u64,
    /// The duration of the replay in nanoseconds; `None` if it includes reading the file.
    pub nanoseconds: Option<u64>,
}

/// A request that failed in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The step of the workload; `None` if the blocks at the start did not fit.
    pub step: Option<usize>,
    /// The event of the history.
    pub event: Option<u64>,
    /// Requested bytes.
    pub bytes: u64,
    /// Live bytes.
    pub live: u64,
    /// Reserved bytes.
    pub reserved: u64,
    /// Reserved bytes that were free.
    pub cached: u64,
    /// The largest free block.
    pub largest_free: u64,
}

impl<'a> Simulation<'a> {
    /// Creates a simulation of a workload on a device whose memory is not limited.
    #[must_use]
    pub fn new(work: &'a Workload) -> Self {
        let capacity = MemoryCapacity::UNLIMITED;
        Self { work, capacity, cache_releases: &[], passes: 1, peak_live: None }
    }

    /// Limits the device's memory to `bytes` bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        self.with_capacity(MemoryCapacity::of_device(bytes))
    }

    /// Adds the conditions of the recorded run: its memory limit and its calls of `empty_cache`. A limit that
    /// is set afterwards replaces that of the run.
    #[must_use]
    pub fn under(mut self, conditions: &'a RunConditions) -> Self {
        self.cache_releases = &conditions.cache_releases;
        conditions.limit.map_or(self, |limit| {
            self.with_capacity(MemoryCapacity {
                bytes: limit.bytes.min(UNLIMITED),
                of_process: limit.of_process,
            })
        })
    }

    /// Sets the peak of live bytes of the workload, which each run otherwise computes.
    pub(crate) fn with_peak_live(mut self, bytes: u64) -> Self {
        self.peak_live = Some(bytes);
        self
    }

    pub(crate) fn with_capacity(mut self, capacity: MemoryCapacity) -> Self {
        self.capacity = capacity;
        self
    }

    /// Repeats the workload `passes` times. Between passes, blocks that are live at the end and were not at
    /// the start are freed. Zero counts as one.
    #[must_use]
    pub fn passes(mut self, passes: usize) -> Self {
        self.passes = passes.max(1);
        self
    }

    /// Runs the simulation under these rules.
    #[must_use]
    pub fn run(&self, rules: &AllocatorRules) -> SimulationOutcome {
        let mut simulator = Simulator::new(rules, self.capacity, self.work.blocks.len() + 1);
        let begin = Instant::now();
        let (mut operations, mut remapped_before) = (0, 0);
        let mut failed = self.begin(&mut simulator);
        for pass in 0..self.passes {
            if failed.is_some() {
                break;
            }
            if pass > 0 {
                remapped_before = simulator.stats().remapped;
                self.rewind(&mut simulator);
            }
            failed = self.pass(&mut simulator, &mut operations);
        }
        let nanoseconds = begin.elapsed().min(Duration::from_secs(1 << 30));
        let stats = simulator.stats();
        let memory = (self.capacity.bytes < UNLIMITED).then_some(self.capacity.bytes);
        SimulationOutcome {
            remapped_last: stats.remapped - remapped_before,
            operations,
            nanoseconds: u64::try_from(nanoseconds.as_nanos()).ok(),
            ..outcome(rules, memory, self.peak_live.unwrap_or_else(|| self.work.peak().0), stats, failed)
        }
    }

    /// Returns the number of retries with these rules in `bytes` bytes; `None` if the workload does not run
    /// in them.
    pub(crate) fn retries_in(&self, rules: &AllocatorRules, bytes: u64) -> Option<u64> {
        let bytes = bytes.min(UNLIMITED);
        let simulation = self.with_capacity(MemoryCapacity { bytes, ..self.capacity });
        let mut simulator = Simulator::new(rules, simulation.capacity, self.work.blocks.len() + 1);
        let failed = simulation.begin(&mut simulator).or_else(|| simulation.pass(&mut simulator, &mut 0));
        failed.is_none().then(|| simulator.stats().retries)
    }

    /// Allocates the blocks that were live at the start.
    fn begin(&self, simulator: &mut Simulator) -> Option<FailedRequest> {
        let mut live = 0;
        for (id, block) in (0..).zip(&self.work.blocks[..self.work.at_start]) {
            if let Err(shortage) = simulator.allocate(id, block) {
                return Some(shortage.into_failed(None, block.bytes, live));
            }
            live += block.bytes;
        }
        None
    }

    fn pass(&self, simulator: &mut Simulator, operations: &mut u64) -> Option<FailedRequest> {
        // The slot for a request that failed in the recording.
        let failed_block = u32::try_from(self.work.blocks.len()).unwrap_or(u32::MAX);
        let mut releases = self.cache_releases.iter().peekable();
        for (index, step) in self.work.steps.iter().enumerate() {
            let event = self.work.events.get(index).copied().unwrap_or(0);
            while releases.next_if(|&&release| release < event).is_some() {
                simulator.empty_cache();
            }
            let failed;
            let (id, block) = match *step {
                WorkStep::Allocate(id) => (id, &self.work.blocks[id as usize]),
                WorkStep::Free(id) => {
                    if self.work.blocks[id as usize].stays_pending {
                        simulator.free_later(id);
                    } else {
                        simulator.free(id);
                    }
                    *operations += 1;
                    continue;
                }
                WorkStep::Completed(id) => {
                    simulator.complete(id);
                    continue;
                }
                WorkStep::Use(id, stream) => {
                    simulator.record_stream(id, stream);
                    continue;
                }
                WorkStep::Failed(bytes, stream) => {
                    failed = WorkBlock::new(bytes, stream);
                    (failed_block, &failed)
                }
            };
            *operations += 1;
            if let Err(shortage) = simulator.allocate(id, block) {
                let failed = shortage.into_failed(Some(index), block.bytes, self.work.live_before(index));
                return Some(FailedRequest { event: Some(event.into()), ..failed });
            }
            if id == failed_block {
                simulator.free(id);
            }
        }
        if releases.next().is_some() {
            simulator.empty_cache();
        }
        None
    }

    /// Restores the state of the start between passes.
    fn rewind(&self, simulator: &mut Simulator) {
        simulator.complete_all();
        for (id, block) in (0..).zip(&self.work.blocks) {
            if block.died.is_none() && block.born.is_some() {
                simulator.free(id);
            }
        }
        for (id, block) in (0..).zip(&self.work.blocks[..self.work.at_start]) {
            if block.died.is_some() {
                // It fitted in the previous pass; if it fails now, its free has no effect.
                let _refused = simulator.allocate(id, block);
            }
        }
    }
}

/// Creates the outcome of a replay in one pass, without its operations and its duration.
pub(crate) fn outcome(
    rules: &AllocatorRules,
    memory: Option<u64>,
    peak_live: u64,
    stats: SimulatorStats,
    out_of_memory: Option<FailedRequest>,
) -> SimulationOutcome {
    SimulationOutcome {
        rules: rules.to_string(),
        conf: rules.conf(),
        memory,
        peak_live,
        peak_reserved: stats.peak_reserved,
        ratio: if peak_live == 0 { 1.0 } else { stats.peak_reserved as f64 / peak_live as f64 },
        reserved: stats.reserved,
        retries: stats.retries,
        device_allocations: stats.device_allocations,
        remapped: stats.remapped,
        remapped_last: stats.remapped,
        steals: stats.steals,
        stream_waits: stats.stream_waits,
        out_of_memory,
        operations: 0,
        folded: stats.folded,
        nanoseconds: None,
    }
}

impl Shortage {
    /// Creates the failure of a request of `bytes` bytes, with `live` live bytes.
    pub(super) fn into_failed(self, step: Option<usize>, bytes: u64, live: u64) -> FailedRequest {
        let Self { reserved, cached, largest_free } = self;
        FailedRequest { step, event: None, bytes, live, reserved, cached, largest_free }
    }
}
