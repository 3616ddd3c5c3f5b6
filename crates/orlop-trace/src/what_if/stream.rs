//! A replay of a recording of any length: event by event, as they are read.

use super::machine::{Machine, UNLIMITED};
use super::rules::Rules;
use super::simulation::{FailedRequest, Outcome, outcome};
use crate::Result;
use crate::formats::binary::{BinaryReader, Item, Order};
use crate::history::{Action, BlockState, Event, MAX_WARNINGS, SegmentBlock, Warning, WorkBlock};
use orlop_core::StreamId;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::Read;
use std::time::{Duration, Instant};

/// Events that are nearly in order are put in order while so many are held: 48 MiB of them.
const HELD: usize = 1 << 20;

/// A replay of one of orlop's own files, of any length: it holds the blocks that live, and what the events name.
///
/// It gives what a [`Simulation`](super::Simulation) of the whole [`History`](crate::history::History) gives, in one pass
/// and without the memory. Of a file whose events are [nearly](Order::Nearly) in order a million are held at once: those
/// that come later than that are replayed where they come.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamedReplay {
    /// By device what came out.
    pub devices: Vec<(u32, Outcome)>,
    /// Where the file is cut off or damaged: what came before was replayed.
    pub warnings: Vec<Warning>,
}

impl StreamedReplay {
    /// Replays a file, plain or gzip, on devices with memory enough or of so many bytes.
    ///
    /// ```
    /// use orlop_trace::formats::{binary, rmm};
    /// use orlop_trace::what_if::{Rules, StreamedReplay};
    ///
    /// let history = rmm::read_rmm("1,0:0:1:0,allocate,0x10,256,0\n".as_bytes())?;
    /// let mut file = Vec::new();
    /// binary::write_binary(&history, &mut file)?;
    /// let replay = StreamedReplay::run(&file[..], &Rules::Orlop, None)?;
    /// assert_eq!(replay.devices[0].1.peak_live, 256);
    /// # Ok::<(), orlop_trace::TraceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FormatError::NotThis`](crate::formats::FormatError::NotThis) for a file of another format, and others of its kind.
    pub fn run(reader: impl Read, rules: &Rules, memory: Option<u64>) -> Result<Self> {
        let mut reader = BinaryReader::new(reader)?;
        let nearly = reader.order() == Order::Nearly;
        let mut devices = Feeds { rules, memory, feeds: BTreeMap::new() };
        let mut warnings = Vec::new();
        let (mut number, mut stream) = (0, None);
        while let Some(item) = reader.item_or_end(&mut warnings)? {
            match item {
                Item::Device(device) => number = device,
                Item::Segment { at_end, segment } => stream = (!at_end).then_some(segment.stream),
                Item::Piece(block) => {
                    if let Some(stream) = stream {
                        devices.get(number).at_start(&block, stream);
                    }
                }
                Item::Event(event) if nearly => devices.get(number).soon(event),
                Item::Event(event) => devices.get(number).event(&event),
                Item::Warning(warning) if warnings.len() < MAX_WARNINGS => warnings.push(warning),
                Item::Warning(_)
                | Item::Settings(_)
                | Item::Memory(_)
                | Item::Annotation(_)
                | Item::Detail(_) => {}
            }
        }
        let devices = devices.feeds.into_iter().map(|(device, feed)| (device, feed.finish(rules, memory)));
        Ok(Self { devices: devices.collect(), warnings })
    }
}

/// By device, made when it is first named.
struct Feeds<'a> {
    rules: &'a Rules,
    memory: Option<u64>,
    feeds: BTreeMap<u32, Feed>,
}

impl Feeds<'_> {
    fn get(&mut self, device: u32) -> &mut Feed {
        self.feeds.entry(device).or_insert_with(|| Feed::new(self.rules, self.memory))
    }
}

/// What is replayed of one device.
struct Feed {
    machine: Machine,
    /// Blocks that live by the address of the recording: their number here, if they have one, and how many bytes were asked
    /// for.
    live: HashMap<u64, (Option<u32>, u64)>,
    /// Numbers of no block.
    vacant: Vec<u32>,
    next: u32,
    /// Events that wait for earlier ones, the earliest first.
    held: BinaryHeap<Held>,
    bytes: u128,
    peak: u128,
    events: u32,
    steps: usize,
    operations: u64,
    failed: Option<FailedRequest>,
    begin: Instant,
}

/// An event by time, and at one time by place.
struct Held(Event, u64);

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.0.time, self.1)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    /// The heap gives the greatest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key().cmp(&self.key())
    }
}

impl Feed {
    fn new(rules: &Rules, memory: Option<u64>) -> Self {
        Self {
            machine: Machine::new(rules, memory.unwrap_or(UNLIMITED).min(UNLIMITED), 0),
            live: HashMap::new(),
            vacant: Vec::new(),
            next: 0,
            held: BinaryHeap::new(),
            bytes: 0,
            peak: 0,
            events: 0,
            steps: 0,
            operations: 0,
            failed: None,
            begin: Instant::now(),
        }
    }

    /// A piece of a segment that was there at the start.
    fn at_start(&mut self, block: &SegmentBlock, stream: StreamId) {
        if block.state == BlockState::Live {
            self.allocate(block.address, &WorkBlock::asked(block.requested, stream));
        }
    }

    /// An event, before which others may have happened that come later.
    fn soon(&mut self, event: Event) {
        let place = self.held.len() as u64 + u64::from(self.events);
        self.held.push(Held(event, place));
        if self.held.len() > HELD
            && let Some(Held(event, _)) = self.held.pop()
        {
            self.event(&event);
        }
    }

    fn event(&mut self, event: &Event) {
        let place = self.events;
        self.events = self.events.saturating_add(1);
        let had_failed = self.failed.is_some();
        match event.action {
            Action::Allocate if !self.live.contains_key(&event.address) => {
                let asked = WorkBlock { kind: event.kind, ..WorkBlock::asked(event.bytes, event.stream) };
                self.allocate(event.address, &asked);
                self.operations += u64::from(!had_failed);
            }
            // A completion without a request is all that the source tells; one after it finds nothing.
            Action::FreeRequested | Action::FreeCompleted => {
                let Some((id, bytes)) = self.live.remove(&event.address) else { return };
                self.bytes -= u128::from(bytes);
                if let Some(id) = id.filter(|_| !had_failed) {
                    self.machine.free(id);
                    self.vacant.push(id);
                    self.operations += 1;
                }
            }
            Action::Use => {
                let Some(&(id, _)) = self.live.get(&event.address) else { return };
                if let Some(id) = id.filter(|_| !had_failed) {
                    self.machine.used_by(id, event.stream);
                }
            }
            Action::OutOfMemory => {
                if let Some(id) = self.ask(&WorkBlock::asked(event.bytes, event.stream)) {
                    self.machine.free(id);
                    self.vacant.push(id);
                }
                self.operations += u64::from(!had_failed);
            }
            _ => return,
        }
        if let Some(failed) = self.failed.as_mut().filter(|_| !had_failed) {
            (failed.step, failed.event) = (Some(self.steps), Some(place));
        }
        self.steps += 1;
    }

    /// A block lives from now on. After a request has failed nothing is asked any more, but what lives is counted.
    fn allocate(&mut self, address: u64, asked: &WorkBlock) {
        let id = self.ask(asked);
        self.live.insert(address, (id, asked.bytes));
        self.bytes += u128::from(asked.bytes);
        self.peak = self.peak.max(self.bytes);
    }

    /// Asks for a block: its number, or `None` if this request fails or one has failed before.
    fn ask(&mut self, asked: &WorkBlock) -> Option<u32> {
        if self.failed.is_some() {
            return None;
        }
        let id = self.number();
        match self.machine.allocate(id, asked) {
            Ok(()) => Some(id),
            Err(lack) => {
                let live = u64::try_from(self.bytes).unwrap_or(u64::MAX);
                self.failed = Some(lack.of(None, asked.bytes, live));
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

    fn finish(mut self, rules: &Rules, memory: Option<u64>) -> Outcome {
        while let Some(Held(event, _)) = self.held.pop() {
            self.event(&event);
        }
        let nanoseconds = self.begin.elapsed().min(Duration::from_secs(1 << 30));
        let peak = u64::try_from(self.peak).unwrap_or(u64::MAX);
        let memory = memory.filter(|&memory| memory < UNLIMITED);
        let held = self.machine.held();
        Outcome {
            operations: self.operations,
            ..outcome(rules, memory, peak, held, self.failed, nanoseconds)
        }
    }
}
