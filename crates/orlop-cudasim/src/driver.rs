//! [`Driver`]: everything that the simulated driver knows.

use crate::codes::{Failure, Outcome};
use crate::memory::{Memory, ProcessRecord};
use crate::state::capture::Capture;
use crate::state::config::Config;
use crate::state::device::{SimDevice, device_of_primary};
use crate::state::durations::Durations;
use crate::state::event::Event;
use crate::state::faults::Faults;
use crate::state::graph::{Executable, Graph};
use crate::state::host_thread;
use crate::state::modules::Modules;
use crate::state::pool::Pool;
use crate::state::races::Races;
use crate::state::stream::Stream;
use crate::state::virtual_memory::VirtualMemory;
use orlop_race::WorkOrder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The state of the driver.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) config: Config,
    pub(crate) is_initialized: bool,
    /// Virtual time in nanoseconds.
    pub(crate) now: u64,
    /// The end of the last completed operation.
    pub(crate) cursor: u64,
    pub(crate) durations: Durations,
    pub(crate) next_handle: u64,
    /// The handles of streams and events that are gone, each with its last position or generation.
    pub(crate) freed_streams: Vec<(u64, u64)>,
    pub(crate) freed_events: Vec<(u64, u64)>,
    /// The handles of pools and of physical memory that are gone.
    freed_handles: Vec<u64>,
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    /// Streams so far.
    pub(crate) stream_count: u64,
    /// The streams with operations that have not completed.
    pub(crate) busy: BTreeSet<u64>,
    /// Per-thread default streams, by thread and device.
    pub(crate) thread_streams: HashMap<(u64, usize), u64>,
    pub(crate) events: HashMap<u64, Event>,
    /// Records of events that other processes may wait for, which have not completed.
    pub(crate) process_records: Vec<ProcessRecord>,
    pub(crate) memory: Memory,
    pub(crate) vmm: VirtualMemory,
    pub(crate) pools: BTreeMap<u64, Pool>,
    pub(crate) order: WorkOrder,
    pub(crate) races: Races,
    pub(crate) faults: Faults,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: HashMap<u64, Arc<Graph>>,
    pub(crate) executables: HashMap<u64, Executable>,
    pub(crate) modules: Modules,
    /// Time that the host spent waiting for streams, in nanoseconds, and how often it waited.
    pub(crate) waited_ns: u64,
    pub(crate) waits: u64,
    /// Physical allocations so far that were flagged for other hardware.
    pub(crate) rdma_pages: u64,
}

impl Default for Driver {
    fn default() -> Self {
        Self::new(Config::default(), Memory::default(), Modules::default())
    }
}

impl Driver {
    /// Creates a driver. The memory keeps its mapping and the modules their registered kernels.
    pub(crate) fn new(config: Config, memory: Memory, modules: Modules) -> Self {
        let mut driver = Self {
            durations: Durations::new(config.seed),
            is_initialized: false,
            now: 0,
            cursor: 0,
            next_handle: 0x5000_0000_0000,
            freed_streams: Vec::new(),
            freed_events: Vec::new(),
            freed_handles: Vec::new(),
            devices: Vec::new(),
            streams: BTreeMap::new(),
            stream_count: 0,
            busy: BTreeSet::new(),
            thread_streams: HashMap::new(),
            events: HashMap::new(),
            process_records: Vec::new(),
            memory,
            vmm: VirtualMemory::default(),
            pools: BTreeMap::new(),
            order: WorkOrder::new(),
            races: Races::default(),
            faults: Faults::default(),
            captures: BTreeMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            modules,
            waited_ns: 0,
            waits: 0,
            rdma_pages: 0,
            config,
        };
        for (device, total) in driver.config.devices.clone().into_iter().enumerate() {
            let legacy = driver.add_stream(device, Stream::legacy());
            let pool = driver.handle();
            driver.pools.insert(pool, Pool::new(device, true));
            driver.devices.push(SimDevice::new(total, legacy, pool));
        }
        driver
    }

    /// Starts anew: nothing is allocated, the clock is at 0, nothing was counted. Registered kernels stay.
    pub(crate) fn reset(&mut self, config: Config) {
        let mut memory = std::mem::take(&mut self.memory);
        for reservation in self.vmm.reservations() {
            memory.drop_reservation(reservation);
        }
        memory.clear();
        let mut modules = std::mem::take(&mut self.modules);
        modules.unload_all();
        let first = self.next_handle;
        *self = Self::new(config, memory, modules);
        // A handle from before the reset is invalid, not another object's.
        self.next_handle = self.next_handle.max(first);
    }

    /// Returns a new handle, which no other object has had.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x40;
        self.next_handle
    }

    /// Returns the handle of a pool or of physical memory that is gone, or else a new one.
    pub(crate) fn free_or_new_handle(&mut self) -> u64 {
        self.freed_handles.pop().unwrap_or_else(|| self.handle())
    }

    /// Gives the handle of a pool or of physical memory that is gone to the next of them.
    pub(crate) fn free_handle(&mut self, handle: u64) {
        if !self.config.has_unique_handles {
            self.freed_handles.push(handle);
        }
    }

    /// Adds a stream to a device. It gets the handle of the one that was removed last, and counts its
    /// operations on: positions of that one are complete.
    pub(crate) fn add_stream(&mut self, device: usize, stream: Stream) -> u64 {
        let (handle, submitted) = self.freed_streams.pop().unwrap_or_else(|| (self.handle(), 0));
        let queue = self.order.add_queue();
        let completed = submitted;
        self.stream_count += 1;
        let number = self.stream_count;
        self.streams.insert(handle, Stream { device, number, queue, submitted, completed, ..stream });
        handle
    }

    /// Gives the handle of a stream that is gone to the next one.
    pub(crate) fn free_stream_handle(&mut self, handle: u64, submitted: u64) {
        if !self.config.has_unique_handles {
            self.freed_streams.push((handle, submitted));
        }
    }

    /// Returns the index of a `CUdevice`.
    pub(crate) fn device(&self, device: i32) -> Outcome<usize> {
        let index = usize::try_from(device).ok().filter(|&index| index < self.devices.len());
        index.ok_or(Failure::INVALID_DEVICE)
    }

    /// Returns the device of a context handle.
    pub(crate) fn device_of_context(&self, context: u64) -> Outcome<usize> {
        let device = device_of_primary(context).filter(|&device| device < self.devices.len());
        device.ok_or(Failure::INVALID_CONTEXT)
    }

    /// Returns the device of the current context, which must be retained.
    pub(crate) fn current_device(&self) -> Outcome<usize> {
        let device = self.device_of_context(host_thread::current())?;
        if self.devices[device].retained == 0 {
            return Err(Failure::CONTEXT_IS_DESTROYED);
        }
        Ok(device)
    }

    pub(crate) fn stream(&self, id: u64) -> Outcome<&Stream> {
        self.streams.get(&id).ok_or(Failure::INVALID_HANDLE)
    }

    pub(crate) fn stream_mut(&mut self, id: u64) -> Outcome<&mut Stream> {
        self.streams.get_mut(&id).ok_or(Failure::INVALID_HANDLE)
    }

    /// Returns `true` if everything submitted to a stream has completed.
    pub(crate) fn is_idle(&self, id: u64) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.operations.is_empty())
    }

    /// Returns `true` if a stream has completed everything up to a position.
    pub(crate) fn is_done(&self, id: u64, position: u64) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.completed >= position)
    }

    /// Takes memory of a device that nothing has.
    pub(crate) fn charge_free(&mut self, device: usize, bytes: usize) -> Result<(), Failure> {
        let device = &mut self.devices[device];
        let used = device.used.checked_add(bytes as u64).filter(|&used| used <= device.total);
        device.used = used.ok_or(Failure::OUT_OF_MEMORY)?;
        Ok(())
    }

    pub(crate) fn uncharge(&mut self, device: usize, bytes: usize) {
        let device = &mut self.devices[device];
        device.used = device.used.saturating_sub(bytes as u64);
    }
}
