//! Recorded programs of PyTorch's caching allocator, with its results: `testdata/torch-golden*`.
//!
//! A program is a pair of files, `NAME.ops.gz` and `NAME.expected.gz`; the folder's README defines both.
//! [`TorchProgram`] runs the operations on the device engine with the program's settings and compares every
//! address and every statistic.

use crate::golden::{GoldenError, gz_text};
use orlop_core::torch::TorchReleases;
use orlop_core::{Device, StreamId};
use orlop_device::{
    DeviceBacking, DeviceBlock, DeviceError, DeviceRequest, Engine, NullDevice, Policy, PoolId, StreamFilter,
    TorchConf,
};
use std::collections::HashMap;
use std::path::Path;
use std::str::{FromStr, Split};

/// The file name suffix of operations.
pub const OPERATIONS: &str = ".ops.gz";

/// The invariants of the engine are checked once per this number of operations.
const VERIFY_EVERY: usize = 500;

/// A recorded program with PyTorch's results.
#[derive(Debug, Clone)]
pub struct TorchProgram {
    /// The name of its files, without their endings.
    pub name: String,
    operations: String,
    expected: String,
}

/// The engine's results compared with PyTorch's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TorchComparison {
    /// The number of compared results: addresses, failures and lines of statistics.
    pub answers: usize,
    /// The results that differ.
    pub differences: Vec<String>,
    /// Allowed differences in counts of splits: PyTorch polls the events of several streams in the order of a
    /// hash table, which decides the free neighbours that merge first. The numbers of splits at the end
    /// agree.
    pub by_event_order: Vec<String>,
}

impl TorchProgram {
    /// Reads a program from its file of operations; the results are in the same folder.
    ///
    /// # Errors
    ///
    /// [`GoldenError::Io`].
    pub fn read(operations: &Path) -> Result<Self, GoldenError> {
        let file = operations.file_name().unwrap_or_default().to_string_lossy();
        let name = file.strip_suffix(OPERATIONS).unwrap_or(&file).to_owned();
        let expected = gz_text(&operations.with_file_name(format!("{name}.expected.gz")))?;
        Ok(Self { name, operations: gz_text(operations)?, expected })
    }

    /// Runs the program over addresses without memory: [`compare_over`](Self::compare_over).
    ///
    /// # Errors
    ///
    /// Those of `compare_over`.
    pub fn compare(&self) -> Result<TorchComparison, GoldenError> {
        self.compare_over(|memory| self.addresses(memory))
    }

    /// Returns a device without memory whose addresses are those of the recorded device.
    #[must_use]
    pub fn addresses(&self, memory: u64) -> NullDevice {
        let order = self.operations.lines().next().and_then(|line| line.split_once(ORDER));
        match order.and_then(|(_, order)| order.split_whitespace().next()) {
            Some("down") => NullDevice::descending(Device::cuda(0), memory),
            Some("reuse") => NullDevice::lowest_hole(Device::cuda(0), memory),
            _ => NullDevice::new(Device::cuda(0), memory),
        }
    }

    /// Runs the program on the device engine, with PyTorch's policy and the program's settings, over a device
    /// of the program's number of bytes.
    ///
    /// # Errors
    ///
    /// [`GoldenError::Operation`] for a line that is not an operation, [`GoldenError::Engine`] if the engine
    /// fails an operation that PyTorch accepted, or its invariants do not hold.
    pub fn compare_over<D: GoldenDevice>(
        &self,
        make: impl FnOnce(u64) -> D,
    ) -> Result<TorchComparison, GoldenError> {
        let mut lines = self.operations.lines().enumerate();
        let head = lines.next().and_then(|(_, line)| settings(line));
        let (conf, memory) = head.ok_or(GoldenError::Operation { line: 1 })?;
        let engine = Engine::new(make(memory), Policy::torch(&conf));
        let mut run = TorchRun { engine, blocks: HashMap::new() };
        let mut expected = self.expected.lines();
        let mut comparison = TorchComparison::default();
        for (number, line) in lines {
            let line_number = number + 1;
            let operation =
                TorchOperation::parse(line).ok_or(GoldenError::Operation { line: line_number })?;
            let answer = run.execute(operation);
            let answer = answer.map_err(|error| GoldenError::Engine { line: line_number, error })?;
            if let Some(answer) = answer {
                comparison.compare(&answer, expected.next(), || format!("line {line_number}, {line}"));
            }
            if number % VERIFY_EVERY == 0 {
                run.verify(line_number)?;
            }
        }
        run.verify(self.operations.lines().count())?;
        let statistics = run.engine.stats().to_string();
        for line in statistics.lines() {
            comparison.compare_statistic(line, expected.next());
        }
        for line in expected {
            comparison.compare("nothing", Some(line), || "the end".to_owned());
        }
        Ok(comparison)
    }
}

/// What follows is the order of the device's regions; without it they ascend.
const ORDER: &str = " order=";

/// What follows is the release of PyTorch that answered, if it is not the newest.
const RELEASE: &str = " release=";

/// Parses `# settings=<settings, or -> mem=<bytes>`, and perhaps an order and a release.
fn settings(line: &str) -> Option<(TorchConf, u64)> {
    let (conf, memory) = line.strip_prefix("# settings=")?.split_once(" mem=")?;
    let (memory, release) =
        memory.split_once(RELEASE).map_or((memory, None), |(memory, release)| (memory, Some(release)));
    let memory = memory.split_once(ORDER).map_or(memory, |(memory, _)| memory);
    let conf: TorchConf = if conf == "-" { "" } else { conf }.parse().ok()?;
    let ties = match release {
        None => conf.ties,
        Some(release) => *TorchReleases::of(release.parse().ok()?).tie_rules().first()?,
    };
    Some((conf.with_ties(ties), memory.parse().ok()?))
}

#[derive(Debug, Clone, PartialEq)]
enum TorchOperation {
    Allocate {
        id: u64,
        bytes: usize,
        stream: u64,
    },
    Free {
        id: u64,
    },
    RecordStream {
        id: u64,
        stream: u64,
    },
    EventsDone(bool),
    EmptyCache,
    MemoryFraction(f64),
    /// Requests of this stream go to a private pool.
    BeginPool {
        pool: PoolId,
        stream: u64,
    },
    EndPool(PoolId),
    ReleasePool(PoolId),
    PoolOnOom(PoolId, bool),
    EmptyPool(PoolId),
    Capture(bool),
    /// The class of a stream, for the addresses of its segments.
    ReserveClass {
        stream: u64,
        class: String,
    },
}

impl TorchOperation {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let operation = match words.next()? {
            "a" => Self::Allocate {
                id: number(&mut words)?,
                bytes: number(&mut words)?,
                stream: number(&mut words)?,
            },
            "f" => Self::Free { id: number(&mut words)? },
            "r" => Self::RecordStream { id: number(&mut words)?, stream: number(&mut words)? },
            "q" => Self::EventsDone(flag(&mut words)?),
            "e" => Self::EmptyCache,
            "m" => Self::MemoryFraction(number(&mut words)?),
            "b" => Self::BeginPool { pool: pool(&mut words)?, stream: number(&mut words)? },
            "x" => Self::EndPool(pool(&mut words)?),
            "d" => Self::ReleasePool(pool(&mut words)?),
            "o" => Self::PoolOnOom(pool(&mut words)?, flag(&mut words)?),
            "g" => Self::EmptyPool(pool(&mut words)?),
            "k" => Self::Capture(flag(&mut words)?),
            "t" => Self::ReserveClass { stream: number(&mut words)?, class: words.next()?.to_owned() },
            _ => return None,
        };
        words.next().is_none().then_some(operation)
    }
}

fn number<T: FromStr>(words: &mut Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

fn flag(words: &mut Split<'_, char>) -> Option<bool> {
    number::<u8>(words).map(|number| number == 1)
}

/// Parses the second part of a pool's id; the first is 0.
fn pool(words: &mut Split<'_, char>) -> Option<PoolId> {
    Some((0, number(words)?))
}

/// A device that recorded programs run on: its addresses are those of [`TorchProgram::addresses`].
pub trait GoldenDevice: DeviceBacking {
    /// Returns the address from which the recorded ones count.
    fn first_address(&self) -> usize;

    /// Sets whether recorded events are complete when they are queried. If not, they are once they are waited
    /// for.
    fn set_events_done(&self, done: bool);

    /// Returns the stream of a number.
    fn stream(&self, number: u64) -> StreamId;
}

impl GoldenDevice for NullDevice {
    fn first_address(&self) -> usize {
        Self::FIRST_ADDRESS
    }

    fn set_events_done(&self, done: bool) {
        Self::set_events_done(self, done);
    }

    fn stream(&self, number: u64) -> StreamId {
        StreamId::from_raw(number)
    }
}

/// A running program.
struct TorchRun<D: GoldenDevice> {
    engine: Engine<D>,
    blocks: HashMap<u64, DeviceBlock>,
}

impl<D: GoldenDevice> TorchRun<D> {
    /// Executes one operation. Returns its result, if it has one.
    fn execute(&mut self, operation: TorchOperation) -> Result<Option<String>, DeviceError> {
        match operation {
            TorchOperation::Allocate { id, bytes, stream } => {
                return self.allocate(id, bytes, stream).map(Some);
            }
            // Frees and stream uses of blocks that PyTorch could not allocate are recorded too.
            TorchOperation::Free { id } => {
                self.blocks.remove(&id).map_or(Ok(()), |block| self.engine.free(block))?;
            }
            TorchOperation::RecordStream { id, stream } => {
                let (block, stream) = (self.blocks.get(&id), self.engine.backing().stream(stream));
                block.map_or(Ok(()), |&block| self.engine.record_stream(block, stream))?;
            }
            TorchOperation::EventsDone(done) => self.engine.backing().set_events_done(done),
            TorchOperation::EmptyCache => self.engine.empty_cache()?,
            TorchOperation::MemoryFraction(fraction) => self.engine.set_memory_fraction(fraction),
            TorchOperation::BeginPool { pool, stream } => {
                let stream = self.engine.backing().stream(stream);
                self.engine.begin_allocate_to_pool(pool, StreamFilter::only([stream]))?;
            }
            TorchOperation::EndPool(pool) => self.engine.end_allocate_to_pool(pool)?,
            TorchOperation::ReleasePool(pool) => self.engine.release_pool(pool)?,
            TorchOperation::PoolOnOom(pool, allowed) => match self.engine.use_pool_on_oom(pool, allowed) {
                // PyTorch allows this for a pool that it has dropped.
                Err(DeviceError::NoPool { .. }) if !allowed => {}
                result => result?,
            },
            TorchOperation::EmptyPool(pool) => self.engine.empty_pool(pool)?,
            TorchOperation::Capture(true) => self.engine.mark_capture_begin(),
            TorchOperation::Capture(false) => self.engine.mark_capture_end()?,
            TorchOperation::ReserveClass { stream, class } => {
                let stream = self.engine.backing().stream(stream);
                self.engine.set_reserve_class(stream, &class);
            }
        }
        Ok(None)
    }

    fn allocate(&mut self, id: u64, bytes: usize, stream: u64) -> Result<String, DeviceError> {
        let stream = self.engine.backing().stream(stream);
        match self.engine.allocate(DeviceRequest::new(bytes, stream)) {
            Ok(block) => {
                self.blocks.insert(id, block);
                let first = self.engine.backing().first_address();
                Ok(format!("{id} {}", self.engine.address(block) - first))
            }
            Err(DeviceError::OutOfMemory { .. }) => Ok(format!("{id} OOM")),
            Err(error) => Err(error),
        }
    }

    fn verify(&self, line: usize) -> Result<(), GoldenError> {
        self.engine.verify().map_err(|error| GoldenError::Invariant { line, error })
    }
}

impl TorchComparison {
    fn compare(&mut self, ours: &str, recorded: Option<&str>, place: impl FnOnce() -> String) {
        self.answers += 1;
        let recorded = recorded.unwrap_or("nothing");
        if ours != recorded {
            self.differences.push(format!("{}: {ours}, recorded {recorded}", place()));
        }
    }

    fn compare_statistic(&mut self, ours: &str, recorded: Option<&str>) {
        let of_splits = ours.starts_with("inactive_split");
        // The name and the final value; the rest is history.
        let now = |line: &str| line.split(" peak ").next().unwrap_or_default().to_owned();
        match recorded {
            Some(recorded) if of_splits && ours != recorded && now(ours) == now(recorded) => {
                self.answers += 1;
                self.by_event_order.push(format!("{ours}, recorded {recorded}"));
            }
            _ => self.compare(ours, recorded, || "statistics".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(operations: &str, expected: &str) -> TorchProgram {
        TorchProgram {
            name: "test".to_owned(),
            operations: operations.to_owned(),
            expected: expected.to_owned(),
        }
    }

    #[test]
    fn answers_are_compared_one_by_one() {
        let operations = "# settings=- mem=1073741824\na 0 1000 0\na 1 1000 0\nf 0\ne\n";
        let comparison = program(operations, "0 0\n1 512\n").compare().unwrap();
        assert_eq!(comparison.differences[0], "line 3, a 1 1000 0: 1 1024, recorded 1 512");
        // Every statistic is missing.
        assert_eq!(comparison.differences.len(), 1 + 30);
        assert_eq!(comparison.answers, 2 + 30);
    }

    #[test]
    fn what_is_no_operation_is_an_error() {
        for line in ["z", "a 1 2", "f", "f 1 2", "q x", "b 1", "k 2 1"] {
            let text = format!("# settings=- mem=1\n{line}\n");
            let result = program(&text, "").compare();
            assert!(matches!(result, Err(GoldenError::Operation { line: 2 })), "{line}");
        }
        assert!(matches!(program("a 1 2 0", "").compare(), Err(GoldenError::Operation { line: 1 })));
    }
}
