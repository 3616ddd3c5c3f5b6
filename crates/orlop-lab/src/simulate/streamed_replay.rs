//! A replay of a recording of any length, event by event as it is read.

use super::event_pools::{DEFAULT_POOL, EventPools, PoolNumber};
use super::queued_event::QueuedEvent;
use super::rules::AllocatorRules;
use super::simulation::{FailedRequest, SimulationOutcome, outcome};
use super::simulator::{MemoryCapacity, Simulator, UNLIMITED};
use crate::Result;
use orlop_core::StreamId;
use orlop_device::PoolId;
use orlop_trace::formats::binary::{BinaryReader, BinaryRecord, EventOrder};
use orlop_trace::history::{
    BlockEvent, BlockState, EventInterpreter, HistoryEvent, HistoryWarning, SegmentBlock, WorkBlock,
};
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read;

/// The capacity of the reorder queue in events of all devices: 64 MiB of them.
const QUEUE_CAPACITY: usize = 1 << 20;

/// A replay of a file in orlop's own format, of any length. In memory it has only live blocks, and the names
/// that events use.
///
/// The result is that of a [`Simulation`](super::Simulation) of the whole
/// [`History`](orlop_trace::history::History), in one pass and little memory; the duration is missing, since
/// most of it is reading. If the events of a file are [nearly](EventOrder::Nearly) in order, a queue of a
/// million events sorts them; an event that is later than that is replayed where it is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamedReplay {
    /// The outcome of each device.
    pub devices: Vec<(u32, SimulationOutcome)>,
    /// Whether the file is cut off or damaged; everything before that was replayed.
    pub warnings: Vec<HistoryWarning>,
}

impl StreamedReplay {
    /// Replays a file, plain or gzip, on devices of `memory` bytes each, or without a limit.
    ///
    /// ```
    /// use orlop_trace::formats::{binary, rmm};
    /// use orlop_lab::simulate::{AllocatorRules, StreamedReplay};
    ///
    /// let history = rmm::read_rmm("1,0:0:1:0,allocate,0x10,256,0\n".as_bytes())?;
    /// let mut file = Vec::new();
    /// binary::write_binary(&history, &mut file)?;
    /// let replay = StreamedReplay::run(&file[..], &AllocatorRules::Orlop, None)?;
    /// assert_eq!(replay.devices[0].1.peak_live, 256);
    /// # Ok::<(), orlop_lab::LabError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TraceError::WrongFormat`](orlop_trace::TraceError::WrongFormat) for a file of another format, and
    /// other errors of reading.
    pub fn run(reader: impl Read, rules: &AllocatorRules, memory: Option<u64>) -> Result<Self> {
        Self::of(BinaryReader::new(reader)?, rules, memory)
    }

    /// Replays the remaining records of a reader.
    ///
    /// # Errors
    ///
    /// Those of the reader. A file that is cut off or damaged ends there, with a warning.
    pub fn of(reader: BinaryReader<'_>, rules: &AllocatorRules, memory: Option<u64>) -> Result<Self> {
        Self::with_queue(QUEUE_CAPACITY, reader, rules, memory)
    }

    fn with_queue(
        capacity: usize,
        mut reader: BinaryReader<'_>,
        rules: &AllocatorRules,
        memory: Option<u64>,
    ) -> Result<Self> {
        let nearly = reader.order() == EventOrder::Nearly;
        let mut devices = DeviceReplays {
            rules,
            memory,
            replays: BTreeMap::new(),
            queue: BinaryHeap::new(),
            capacity,
            events: 0,
        };
        let mut warnings = Vec::new();
        let (mut number, mut owner) = (0, None);
        while let Some(item) = reader.next_record(&mut warnings)? {
            match item {
                BinaryRecord::Device(device) => {
                    (number, owner) = (device, None);
                    devices.get(number);
                }
                BinaryRecord::Segment { at_end, segment } => {
                    owner = (!at_end).then_some((segment.stream, segment.pool));
                }
                BinaryRecord::Chunk(block) => {
                    if let Some((stream, pool)) = owner {
                        devices.get(number).at_start(&block, stream, pool);
                    }
                }
                BinaryRecord::Event(event) if nearly => devices.enqueue(number, event),
                BinaryRecord::Event(event) => {
                    let replay = devices.get(number);
                    let pool = replay.pools.next();
                    replay.event(&event, pool);
                }
                BinaryRecord::Detail(detail) => devices.get(number).pools.add(&detail),
                BinaryRecord::Warning(warning) => warning.add_to(&mut warnings),
                // These belong to device 0 if the file names none.
                BinaryRecord::Memory(_) | BinaryRecord::CountedReserved(_) => {
                    devices.get(number);
                }
                BinaryRecord::Unplaced(block) => {
                    devices.get(number).at_start(&block, StreamId::from_raw(0), DEFAULT_POOL);
                }
                _ => {}
            }
        }
        Ok(Self { devices: devices.finish(), warnings })
    }
}

/// The replays of all devices, created on demand.
struct DeviceReplays<'a> {
    rules: &'a AllocatorRules,
    memory: Option<u64>,
    replays: BTreeMap<u32, DeviceReplay>,
    /// The reorder queue, earliest event first, of limited length.
    queue: BinaryHeap<QueuedEvent>,
    capacity: usize,
    /// Events that have been queued so far.
    events: u64,
}

impl DeviceReplays<'_> {
    fn get(&mut self, device: u32) -> &mut DeviceReplay {
        self.replays.entry(device).or_insert_with(|| DeviceReplay::new(self.rules, self.memory))
    }

    /// Queues an event: earlier ones may follow in the file.
    fn enqueue(&mut self, device: u32, event: HistoryEvent) {
        let pool = self.get(device).pools.next();
        let mut first = QueuedEvent { event, index: self.events, device, pool };
        self.events += 1;
        if self.queue.len() < self.capacity {
            self.queue.push(first);
            return;
        }
        // Replaces the earliest: pushing to a full heap would double its memory.
        if let Some(mut earliest) = self.queue.peek_mut()
            && *earliest > first
        {
            std::mem::swap(&mut *earliest, &mut first);
        }
        self.get(first.device).event(&first.event, first.pool);
    }

    fn finish(mut self) -> Vec<(u32, SimulationOutcome)> {
        while let Some(QueuedEvent { event, device, pool, .. }) = self.queue.pop() {
            self.get(device).event(&event, pool);
        }
        let Self { rules, memory, replays, .. } = self;
        replays.into_iter().map(|(device, replay)| (device, replay.finish(rules, memory))).collect()
    }
}

/// The replay of one device.
struct DeviceReplay {
    simulator: Simulator,
    blocks: EventInterpreter<StreamedBlock>,
    /// The previous event and its pool, which are interpreted together with the next.
    last: Option<(HistoryEvent, PoolNumber)>,
    pools: EventPools,
    /// Unused block numbers.
    vacant: Vec<u32>,
    next: u32,
    bytes: u128,
    peak: u128,
    events: u64,
    steps: usize,
    operations: u64,
    failed: Option<FailedRequest>,
}

/// A block of the recording.
#[derive(Debug, Clone, Copy)]
struct StreamedBlock {
    /// Its number in the simulator; `None` if it was allocated after a failed request.
    id: Option<u32>,
    /// Requested bytes.
    bytes: u64,
}

impl DeviceReplay {
    fn new(rules: &AllocatorRules, memory: Option<u64>) -> Self {
        Self {
            simulator: Simulator::new(
                rules,
                memory.map_or(MemoryCapacity::UNLIMITED, MemoryCapacity::of_device),
                0,
            ),
            blocks: EventInterpreter::new(),
            last: None,
            pools: EventPools::default(),
            vacant: Vec::new(),
            next: 0,
            bytes: 0,
            peak: 0,
            events: 0,
            steps: 0,
            operations: 0,
            failed: None,
        }
    }

    /// Allocates a block that was live at the start.
    fn at_start(&mut self, block: &SegmentBlock, stream: StreamId, pool: PoolId) {
        if block.state == BlockState::Live {
            let requested = WorkBlock { pool, ..WorkBlock::new(block.requested, stream) };
            self.allocate(block.address, &requested);
        }
    }

    fn event(&mut self, event: &HistoryEvent, pool: PoolNumber) {
        if let Some((last, pool)) = self.last.replace((*event, pool)) {
            self.replay(&last, pool, Some(event));
        }
    }

    /// Replays an event that is followed by `next`.
    fn replay(&mut self, event: &HistoryEvent, pool: PoolNumber, next: Option<&HistoryEvent>) {
        let index = self.events;
        self.events += 1;
        let had_failed = self.failed.is_some();
        match self.blocks.event(event, next) {
            Some(BlockEvent::Allocate) => {
                let requested = WorkBlock::new(event.bytes, event.stream);
                let requested = WorkBlock { kind: event.kind, pool: self.pools.id(pool), ..requested };
                self.allocate(event.address, &requested);
                self.operations += u64::from(!had_failed);
            }
            Some(BlockEvent::Free { block, pending, .. }) => {
                self.bytes -= u128::from(block.bytes);
                if let Some(id) = block.id.filter(|_| !had_failed) {
                    if pending {
                        self.simulator.free_later(id);
                    } else {
                        self.simulator.free(id);
                        self.vacant.push(id);
                    }
                    self.operations += 1;
                }
            }
            Some(BlockEvent::Completed(block)) => {
                if let Some(id) = block.id.filter(|_| !had_failed) {
                    self.simulator.complete(id);
                    self.vacant.push(id);
                }
            }
            Some(BlockEvent::Use(block)) => {
                if let Some(id) = block.id.filter(|_| !had_failed) {
                    self.simulator.record_stream(id, event.stream);
                }
            }
            Some(BlockEvent::Failed) => {
                if let Some(id) = self.request(&WorkBlock::new(event.bytes, event.stream)) {
                    self.simulator.free(id);
                    self.vacant.push(id);
                }
                self.operations += u64::from(!had_failed);
            }
            _ => return,
        }
        if let Some(failed) = self.failed.as_mut().filter(|_| !had_failed) {
            (failed.step, failed.event) = (Some(self.steps), Some(index));
        }
        self.steps += 1;
    }

    /// Allocates a block. After a failed request, only live bytes are counted.
    fn allocate(&mut self, address: u64, requested: &WorkBlock) {
        let id = self.request(requested);
        self.blocks.insert(address, StreamedBlock { id, bytes: requested.bytes });
        self.bytes += u128::from(requested.bytes);
        self.peak = self.peak.max(self.bytes);
    }

    /// Requests a block. Returns its number, or `None` if this request or an earlier one failed.
    fn request(&mut self, requested: &WorkBlock) -> Option<u32> {
        if self.failed.is_some() {
            return None;
        }
        let id = self.number();
        match self.simulator.allocate(id, requested) {
            Ok(()) => Some(id),
            Err(shortage) => {
                let live = u64::try_from(self.bytes).unwrap_or(u64::MAX);
                self.failed = Some(shortage.into_failed(None, requested.bytes, live));
                None
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn finish(mut self, rules: &AllocatorRules, memory: Option<u64>) -> SimulationOutcome {
        if let Some((last, pool)) = self.last.take() {
            self.replay(&last, pool, None);
        }
        let peak = u64::try_from(self.peak).unwrap_or(u64::MAX);
        let memory = memory.filter(|&memory| memory < UNLIMITED);
        let stats = self.simulator.stats();
        SimulationOutcome { operations: self.operations, ..outcome(rules, memory, peak, stats, self.failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Simulation;
    use super::*;
    use orlop_trace::formats::binary::{BinaryWriter, read_binary};
    use orlop_trace::history::{EventAction, Sites, Workload};

    const CAPACITY: u64 = 16;

    /// Blocks on two devices, each freed two events later. The events are written in runs of `run` in reverse
    /// order; with `tie`, all of a run have the same time.
    fn file(run: u64, tie: bool) -> Vec<u8> {
        let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
        for begin in (0..400).step_by(usize::try_from(run).unwrap()) {
            for index in (begin..begin + run).rev() {
                let action = if index % 4 < 2 { EventAction::Allocate } else { EventAction::FreeRequested };
                let (address, bytes) = (index / 4 * 4 + index % 2, 1 << (9 + index % 14));
                let time = if tie { begin } else { index };
                let event = HistoryEvent { time, ..HistoryEvent::new(action, address, bytes) };
                file.event(u32::try_from(index % 2).unwrap(), &event, &Sites::default()).unwrap();
            }
        }
        file.finish().unwrap()
    }

    fn streamed(file: &[u8], capacity: u64) -> Vec<(u32, SimulationOutcome)> {
        let reader = BinaryReader::new(file).unwrap();
        let capacity = usize::try_from(capacity).unwrap();
        StreamedReplay::with_queue(capacity, reader, &AllocatorRules::Orlop, None).unwrap().devices
    }

    fn whole(file: &[u8]) -> Vec<(u32, SimulationOutcome)> {
        let outcome = |work| SimulationOutcome {
            nanoseconds: None,
            ..Simulation::new(&work).run(&AllocatorRules::Orlop)
        };
        let devices = read_binary(file).unwrap().devices;
        devices.iter().map(|device| (device.device, outcome(Workload::of(device)))).collect()
    }

    #[test]
    fn events_are_sorted_within_the_queue() {
        for run in [1, 4, 8, CAPACITY, CAPACITY + 4] {
            let file = file(run, false);
            let whole = whole(&file);
            assert_eq!(whole.iter().map(|(_, outcome)| outcome.operations).sum::<u64>(), 400);
            assert_eq!(streamed(&file, CAPACITY) == whole, run <= CAPACITY + 1, "{run}");
            assert_eq!(streamed(&file, 1000), whole);
        }
    }

    #[test]
    fn events_of_one_time_keep_their_order() {
        for run in [4, 40] {
            let file = file(run, true);
            assert_eq!(streamed(&file, CAPACITY), whole(&file));
        }
    }
}
