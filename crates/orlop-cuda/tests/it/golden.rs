//! The recorded programs of PyTorch's caching allocator on this crate's memory: every address and every
//! statistic, as in `orlop-testkit`, with the driver's regions, pages, streams and events.
//!
//! `ORLOP_CUDA_GOLDEN` names another folder than `testdata`; `cargo xtask golden` sets it.

use crate::machine::{Machine, handle};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_cuda::{CudaDevice, CudaMemory, DeviceStream};
use orlop_cudasim_control::{KernelRun, SimulatedDriver, SimulationConfig};
use orlop_device::{BackingError, DeviceBacking, EventId};
use orlop_testkit::golden::testdata;
use orlop_testkit::torch::{GoldenDevice, OPERATIONS, TorchComparison, TorchProgram};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The memory of a device at addresses of which none is used twice.
///
/// The driver reuses addresses, and of free blocks that fit equally well an allocator takes the lowest. So
/// each region and reservation has another address for the engine than for the driver.
#[derive(Debug)]
struct RecordedDevice {
    memory: CudaMemory,
    device: CudaDevice,
    driver: SimulatedDriver,
    /// By number: their ids are in the same order.
    streams: Mutex<Vec<DeviceStream>>,
    is_done: AtomicBool,
    addresses: Mutex<SequentialAddresses>,
}

#[derive(Debug)]
struct SequentialAddresses {
    next: usize,
    /// The driver's address of each region and reservation, and its bytes.
    ranges: BTreeMap<usize, (usize, usize)>,
}

/// The first address, and what addresses are multiples of.
const FIRST: usize = 1 << 32;
const GRANULE: usize = 2 << 20;

/// Programs whose counts of splits depend on the order in which PyTorch polls the events of several streams.
const BY_EVENT_ORDER: [&str; 2] = ["x-many-streams", "x-tiny-device"];

/// The time of the work before an event.
const WORK: Duration = Duration::from_millis(1);

impl RecordedDevice {
    fn new(machine: &Machine) -> Self {
        Self {
            memory: CudaMemory::new(&machine.device).unwrap(),
            device: machine.device.clone(),
            driver: **machine,
            streams: Mutex::default(),
            is_done: AtomicBool::new(true),
            addresses: Mutex::new(SequentialAddresses { next: FIRST, ranges: BTreeMap::new() }),
        }
    }

    /// Gives a range of the driver the next address.
    fn give(&self, real: usize, bytes: usize) -> usize {
        let mut addresses = self.addresses.lock().unwrap();
        let address = addresses.next;
        addresses.next += bytes.next_multiple_of(GRANULE);
        addresses.ranges.insert(address, (real, bytes));
        address
    }

    /// Returns the driver's address.
    fn real(&self, address: usize) -> usize {
        let addresses = self.addresses.lock().unwrap();
        let (start, (real, bytes)) = addresses.ranges.range(..=address).next_back().expect("a range");
        assert!(address - start < *bytes, "{address:#x} is in no range");
        real + (address - start)
    }

    fn forget_range(&self, address: usize, bytes: usize) {
        let removed = self.addresses.lock().unwrap().ranges.remove(&address);
        assert_eq!(removed.map(|(_, of)| of), Some(bytes), "a whole range is released");
    }
}

impl GoldenDevice for RecordedDevice {
    fn first_address(&self) -> usize {
        FIRST
    }

    fn set_events_done(&self, done: bool) {
        self.is_done.store(done, Ordering::Relaxed);
    }

    fn stream(&self, number: u64) -> StreamId {
        let (mut streams, place) = (self.streams.lock().unwrap(), usize::try_from(number).unwrap());
        while streams.len() <= place {
            streams.push(self.device.create_stream().unwrap());
        }
        streams[place].id()
    }
}

// SAFETY: the memory's promises. Each of its ranges has an address of its own, where nothing is accessed.
unsafe impl DeviceBacking for RecordedDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        Ok(self.give(self.memory.allocate(bytes)?, bytes))
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller, here and below: `real` is where the range is.
        unsafe { self.memory.release(self.real(address), bytes) }?;
        self.forget_range(address, bytes);
        Ok(())
    }

    fn page_granularity(&self) -> Option<usize> {
        self.memory.page_granularity()
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        Ok(self.give(self.memory.reserve_addresses(bytes)?, bytes))
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: as in `release`.
        unsafe { self.memory.release_addresses(self.real(address), bytes) }?;
        self.forget_range(address, bytes);
        Ok(())
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: as in `release`.
        unsafe { self.memory.map(self.real(address), bytes, page) }
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: as in `release`.
        unsafe { self.memory.unmap(self.real(address), bytes, page) }
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: as in `release`.
        unsafe { self.memory.remap(self.real(from), self.real(to), bytes, page) }
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        // SAFETY: as in `release`.
        unsafe { self.memory.zero(self.real(address), bytes, stream) }
    }

    /// Before each event its stream gets work, which takes longer than all calls of a program.
    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        let streams = self.streams.lock().unwrap();
        let stream = streams.iter().find(|known| known.id() == stream).expect("a stream of the program");
        let work = KernelRun::new("work").takes(WORK);
        self.driver.run_kernel(handle(stream), work).unwrap();
        self.memory.record(stream.id())
    }

    /// The driver completes events whenever it waits, such as in `cuMemFree`, and the recorded device did
    /// not: while events are pending for the program, none is queried.
    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        if !self.is_done.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.driver.advance(100_000 * WORK);
        let is_complete = self.memory.query(event)?;
        assert!(is_complete, "all work is done");
        Ok(is_complete)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.memory.synchronize(event)
    }

    fn forget(&self, event: EventId) {
        self.memory.forget(event);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.memory.wait(stream, event)
    }

    fn is_capturing(&self, stream: StreamId) -> bool {
        self.memory.is_capturing(stream)
    }

    fn memory(&self) -> u64 {
        self.memory.memory()
    }

    fn free_memory(&self) -> Option<u64> {
        self.memory.free_memory()
    }

    fn device(&self) -> Device {
        self.memory.device()
    }

    fn access(&self) -> Access {
        self.memory.access()
    }

    fn name(&self) -> &str {
        "recorded"
    }
}

/// Returns the files of operations in the folders `torch-golden…` of a data set, or else in the folder
/// itself.
fn programs(data: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the folder");
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir() || is_program(path)).collect()
    };
    let is_golden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("torch-golden"))
    };
    let folders = entries(data).into_iter().filter(|path| path.is_dir() && is_golden(path));
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| entries(&folder)).collect();
    if files.is_empty() {
        files = entries(data);
    }
    files.retain(|path| is_program(path));
    files.sort();
    files
}

fn is_program(path: &Path) -> bool {
    path.to_string_lossy().ends_with(OPERATIONS)
}

/// Runs a program, and returns its comparison with the number of driver calls that it took. `None` if the
/// recorded addresses are not those of this device, which ascend.
fn compare(path: &Path) -> Option<(String, TorchComparison, u64)> {
    let program = TorchProgram::read(path).unwrap();
    if !program.has_ascending_regions() {
        return None;
    }
    let mut machine = None;
    let compared = program.compare_over(|memory| {
        let config = SimulationConfig::new().memory(memory).poison(false);
        let made = machine.insert(Machine::new(&config));
        RecordedDevice::new(made)
    });
    let machine = machine.expect("a machine");
    let calls = machine.all_calls().values().sum();
    assert_eq!((machine.used_memory(0), machine.counts().races), (0, 0), "{}", program.name);
    Some((program.name.clone(), compared.unwrap_or_else(|error| panic!("{}: {error}", program.name)), calls))
}

#[test]
fn pytorchs_answers() {
    let data = std::env::var_os("ORLOP_CUDA_GOLDEN");
    let files = programs(&data.map_or_else(|| testdata(""), PathBuf::from));
    let (mut answers, mut driver_calls, mut failures, mut programs) = (0, 0, Vec::new(), 0);
    for path in &files {
        let Some((name, compared, calls)) = compare(path) else {
            println!("{}: its addresses do not ascend", path.display());
            continue;
        };
        programs += 1;
        (answers, driver_calls) = (answers + compared.answers, driver_calls + calls);
        println!("{name}: {} answers, {calls} calls of the driver", compared.answers);
        let mut differences = compared.differences;
        if compared.by_event_order.is_empty() == BY_EVENT_ORDER.contains(&&*name) {
            differences.push(format!("counts of splits: {:?}", compared.by_event_order));
        }
        failures.extend(differences.into_iter().take(5).map(|difference| format!("{name}: {difference}")));
    }
    assert!(programs > 0, "no program: {files:?}");
    assert!(driver_calls > programs, "{driver_calls}: the driver was not used");
    println!("{programs} programs, {answers} answers, {driver_calls} calls of the driver");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
