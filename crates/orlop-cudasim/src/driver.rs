//! [`Driver`]: everything the simulated driver knows, and its configuration.

use crate::capture::Capture;
use crate::codes::Failure;
use crate::events::Event;
use crate::faults::Faults;
use crate::graphs::{Executable, Graph};
use crate::memory::Memory;
use crate::modules::Modules;
use crate::pools::Pool;
use crate::races::Races;
use crate::random::Durations;
use crate::streams::Stream;
use crate::vmm::VirtualMemory;
use orlop_race::{VectorClock, WorkOrder};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What tests configure; see the fields of `control::Configuration`.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) version: i32,
    pub(crate) seed: u64,
    pub(crate) call_ns: u64,
    pub(crate) op_ns: u64,
    pub(crate) bytes_per_us: u64,
    pub(crate) granularity: usize,
    pub(crate) pinned_limit: u64,
    pub(crate) has_poison: bool,
    pub(crate) has_pools: bool,
    pub(crate) has_vmm: bool,
    pub(crate) has_peer_access: bool,
    pub(crate) devices: Vec<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: 13_000,
            seed: 0,
            call_ns: 200,
            op_ns: 2_000,
            bytes_per_us: 20_000,
            granularity: 2 << 20,
            pinned_limit: u64::MAX,
            has_poison: true,
            has_pools: true,
            has_vmm: true,
            has_peer_access: false,
            devices: vec![1 << 30],
        }
    }
}

/// A device with its primary context.
#[derive(Debug, Clone)]
pub(crate) struct SimDevice {
    pub(crate) total: u64,
    pub(crate) used: u64,
    /// How often the primary context is retained.
    pub(crate) retained: u64,
    /// The id of the primary context, which is another one each time that it is created.
    pub(crate) context_id: u64,
    pub(crate) context_flags: u32,
    /// The error that every call on the context returns.
    pub(crate) sticky: Option<Failure>,
    pub(crate) legacy: u64,
    pub(crate) default_pool: u64,
    pub(crate) current_pool: u64,
    pub(crate) peers: BTreeSet<usize>,
    /// The ends of destroyed streams: of all, and of those that the legacy default stream waits for.
    pub(crate) departed: VectorClock,
    pub(crate) departed_blocking: VectorClock,
}

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
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    /// The streams with operations that have not completed.
    pub(crate) busy: BTreeSet<u64>,
    /// Per-thread default streams, by thread and device.
    pub(crate) thread_streams: HashMap<(u64, usize), u64>,
    pub(crate) events: HashMap<u64, Event>,
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
            devices: Vec::new(),
            streams: BTreeMap::new(),
            busy: BTreeSet::new(),
            thread_streams: HashMap::new(),
            events: HashMap::new(),
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
            config,
        };
        for (device, total) in driver.config.devices.clone().into_iter().enumerate() {
            let legacy = driver.add_stream(device, Stream::legacy());
            let pool = driver.handle();
            driver.pools.insert(pool, Pool::new(device, true));
            driver.devices.push(SimDevice {
                total,
                used: 0,
                retained: 0,
                context_id: 0,
                context_flags: 0,
                sticky: None,
                legacy,
                default_pool: pool,
                current_pool: pool,
                peers: BTreeSet::new(),
                departed: VectorClock::default(),
                departed_blocking: VectorClock::default(),
            });
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
        // Handles are never reused: one from before the reset is invalid, not another object's.
        self.next_handle = self.next_handle.max(first);
    }

    /// Returns a new handle, which no other object ever has.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x40;
        self.next_handle
    }

    /// Takes memory of a device.
    pub(crate) fn charge(&mut self, device: usize, bytes: usize) -> Result<(), Failure> {
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
