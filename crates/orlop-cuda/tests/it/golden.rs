//! The recorded programs of PyTorch's caching allocator on this crate's memory: every address and every
//! statistic, as in `orlop-testkit`, with the driver's regions, pages, streams and events.
//!
//! `ORLOP_CUDA_GOLDEN` names another folder than `testdata`; `cargo xtask golden` sets it.

use crate::machine::{Machine, handle};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_cuda::{CudaDevice, CudaMemory, DeviceStream};
use orlop_cudasim_control::{KernelRun, SimulatedDriver, SimulationConfig};
use orlop_device::{BackingError, DeviceBacking, EventId, NullDevice};
use orlop_testkit::golden::testdata;
use orlop_testkit::torch::{GoldenDevice, OPERATIONS, TorchComparison, TorchProgram};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The memory of a device at the addresses of the recorded one.
///
/// Of free blocks that fit equally well an allocator may take the lowest. So each region and reservation has
/// another address for the engine than for the driver.
#[derive(Debug)]
struct RecordedDevice {
    memory: CudaMemory,
    device: CudaDevice,
    driver: SimulatedDriver,
    /// By number: their ids are in the same order.
    streams: Mutex<Vec<DeviceStream>>,
    is_done: AtomicBool,
    addresses: NullDevice,
    /// By address: the driver's address of each region and reservation, and its bytes.
    ranges: Mutex<BTreeMap<usize, (usize, usize)>>,
}

/// Programs whose counts of splits depend on the order in which PyTorch polls the events of several streams.
const BY_EVENT_ORDER: [&str; 2] = ["x-many-streams", "x-tiny-device"];

/// The time of the work before an event.
const WORK: Duration = Duration::from_millis(1);

impl RecordedDevice {
    fn new(machine: &Machine, addresses: NullDevice) -> Self {
        Self {
            memory: CudaMemory::new(&machine.device).unwrap(),
            device: machine.device.clone(),
            driver: **machine,
            streams: Mutex::default(),
            is_done: AtomicBool::new(true),
            addresses,
            ranges: Mutex::default(),
        }
    }

    /// Notes where the driver has a range.
    fn place(&self, address: usize, real: usize, bytes: usize) -> usize {
        self.ranges.lock().unwrap().insert(address, (real, bytes));
        address
    }

    /// Returns the driver's address.
    fn real(&self, address: usize) -> usize {
        let ranges = self.ranges.lock().unwrap();
        let (start, (real, bytes)) = ranges.range(..=address).next_back().expect("a range");
        assert!(address - start < *bytes, "{address:#x} is in no range");
        real + (address - start)
    }

    fn forget_range(&self, address: usize, bytes: usize) {
        let removed = self.ranges.lock().unwrap().remove(&address);
        assert_eq!(removed.map(|(_, of)| of), Some(bytes), "a whole range is released");
    }
}

impl GoldenDevice for RecordedDevice {
    fn first_address(&self) -> usize {
        NullDevice::FIRST_ADDRESS
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
        let real = self.memory.allocate(bytes)?;
        Ok(self.place(self.addresses.allocate(bytes)?, real, bytes))
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller, here and below: `real` is where the range is.
        unsafe { self.memory.release(self.real(address), bytes) }?;
        self.forget_range(address, bytes);
        // SAFETY: as above; there is no memory.
        unsafe { self.addresses.release(address, bytes) }
    }

    fn page_granularity(&self) -> Option<usize> {
        self.memory.page_granularity()
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let real = self.memory.reserve_addresses(bytes)?;
        Ok(self.place(self.addresses.reserve_addresses(bytes)?, real, bytes))
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

/// Runs a program, and returns its name and its comparison, with the number of driver calls that it took.
fn compare(path: &Path) -> (String, TorchComparison, u64) {
    let program = TorchProgram::read(path).unwrap();
    let mut machine = None;
    let compared = program.compare_over(|memory| {
        let config = SimulationConfig::new().memory(memory).poison(false);
        let made = machine.insert(Machine::new(&config));
        RecordedDevice::new(made, program.addresses(memory))
    });
    let machine = machine.expect("a machine");
    let calls = machine.all_calls().values().sum();
    assert_eq!((machine.used_memory(0), machine.counts().races), (0, 0), "{}", program.name);
    (program.name.clone(), compared.unwrap_or_else(|error| panic!("{}: {error}", program.name)), calls)
}

#[test]
fn pytorchs_answers() {
    let data = std::env::var_os("ORLOP_CUDA_GOLDEN");
    let is_known = data.is_none();
    let files = programs(&data.map_or_else(|| testdata(""), PathBuf::from));
    assert!(!files.is_empty(), "no program");
    let (mut answers, mut driver_calls, mut failures) = (0, 0, Vec::new());
    for path in &files {
        let (name, compared, calls) = compare(path);
        assert!(calls > 0, "{name}: the driver was not used");
        (answers, driver_calls) = (answers + compared.answers, driver_calls + calls);
        println!("{name}: {} answers, {calls} calls of the driver", compared.answers);
        let (mut differences, by_order) = (compared.differences, compared.by_event_order);
        if is_known && by_order.is_empty() == BY_EVENT_ORDER.contains(&&*name) {
            differences.push(format!("counts of splits: {by_order:?}"));
        }
        failures.extend(differences.into_iter().take(5).map(|difference| format!("{name}: {difference}")));
    }
    println!("{} programs, {answers} answers, {driver_calls} calls of the driver", files.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
