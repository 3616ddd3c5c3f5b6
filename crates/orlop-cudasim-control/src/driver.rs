//! [`SimulatedDriver`]: the handle of the loaded driver.

use crate::built;
use crate::config::{DriverOptions, SimulationConfig};
use crate::error::{Result, check};
use crate::kernel::{self, KernelAccess, KernelRun, SimulatedKernel};
use crate::library::{self, Functions};
use crate::report::{DriverCounts, LiveAllocation, LiveKind, RaceAccess, RaceReport};
use orlop_cudasim::control::{SimAccessReport, SimAllocation, SimConfiguration, SimCounts, SimRace};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Deref;
use std::path::PathBuf;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The simulated driver of this process. Copies are handles to the same driver.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedDriver(Functions);

/// One test at a time configures the driver.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// The simulated driver, for one test alone. Other tests of the program wait for it.
#[derive(Debug)]
pub struct ExclusiveDriver {
    driver: SimulatedDriver,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for ExclusiveDriver {
    type Target = SimulatedDriver;

    fn deref(&self) -> &SimulatedDriver {
        &self.driver
    }
}

impl SimulatedDriver {
    /// Returns the path of the built library.
    ///
    /// # Errors
    ///
    /// If it is not where cargo puts it, or on another system than Linux.
    pub fn path() -> Result<PathBuf> {
        built::path()
    }

    /// Loads the driver into this process, or returns the loaded one. From then on a request for `libcuda.so`
    /// gets it: this must come before the first call of CUDA.
    ///
    /// # Errors
    ///
    /// If there is no library, if another driver is loaded, or on another system than Linux.
    pub fn load() -> Result<Self> {
        Self::load_with(&DriverOptions::new())
    }

    /// Loads the driver with options.
    ///
    /// # Errors
    ///
    /// As [`SimulatedDriver::load`], and if the driver is loaded with other options.
    pub fn load_with(options: &DriverOptions) -> Result<Self> {
        library::load(options).map(Self)
    }

    /// Loads the driver, waits for tests that use it, and starts it anew.
    ///
    /// # Errors
    ///
    /// As [`SimulatedDriver::load`] and [`SimulatedDriver::reset`].
    pub fn exclusive(config: &SimulationConfig) -> Result<ExclusiveDriver> {
        let driver = Self::load()?;
        // A test that failed in its turn leaves nothing that the reset keeps.
        let turn = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        driver.reset(config)?;
        Ok(ExclusiveDriver { driver, _turn: turn })
    }

    /// Starts the driver anew: nothing is allocated, no stream exists, virtual time is 0, nothing is
    /// counted and no fault is set. Handles and addresses from before are invalid. Registered kernels stay.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn reset(&self, config: &SimulationConfig) -> Result<()> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let raw = SimConfiguration {
            devices: config.devices.as_ptr(),
            device_count: config.devices.len(),
            pinned_limit: config.pinned_limit,
            version: config.version,
            seed: config.seed,
            call_ns: nanoseconds(config.call_time),
            op_ns: nanoseconds(config.operation_time),
            bytes_per_us: config.bytes_per_microsecond,
            granularity: config.granularity,
            has_poison: config.has_poison,
            has_pools: config.has_pools,
            has_vmm: config.has_virtual_memory,
            has_rdma: config.has_rdma,
            page_handle_types: config.page_handle_types,
            has_peer_access: config.has_peer_access,
            frees_wait: config.frees_wait,
            pools_wait: config.pools_wait,
            modules_wait: config.modules_wait,
            shares_access: config.shares_access,
            has_unique_handles: config.has_unique_handles,
            launch_queue: config.launch_queue,
        };
        // SAFETY: the configuration and its list are valid during the call.
        check("reset", unsafe { (self.0.reset)(&raw const raw) })
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.raw_counts().now)
    }

    /// Advances virtual time, and completes the operations that end by then.
    pub fn advance(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: no precondition.
        unsafe { (self.0.advance)(nanoseconds) };
    }

    /// Registers what a kernel does when a program launches it: the kernel of this name in any module. A
    /// pair of closures is a kernel: one returns the accesses of a launch, the other runs it.
    ///
    /// # Errors
    ///
    /// If the driver refuses it.
    pub fn register_kernel(&self, name: &str, kernel: impl SimulatedKernel) -> Result<()> {
        let kernel = kernel::raw(Box::new(kernel));
        // SAFETY: the name is valid during the call; the driver owns the kernel from here on.
        check("register_kernel", unsafe { (self.0.register)(name.as_ptr(), name.len(), kernel) })
    }

    /// Runs a kernel on a stream, without a module. `stream` is the driver's handle of a stream (`CUstream`
    /// as a number); 0 is the default stream of the current context.
    ///
    /// # Errors
    ///
    /// The code that a launch would return: for an invalid handle, or while a capture forbids it.
    pub fn run_kernel(&self, stream: u64, run: KernelRun) -> Result<()> {
        let name = run.name.clone();
        let (accesses, nanoseconds, kernel) = run.into_kernel();
        let (list, count) = (accesses.as_ptr(), accesses.len());
        // SAFETY: name and accesses are valid during the call; the driver owns the kernel from here on.
        let code =
            unsafe { (self.0.launch)(name.as_ptr(), name.len(), stream, list, count, nanoseconds, kernel) };
        check("run_kernel", code)
    }

    /// Checks an access of the host's own code to pinned or registered memory, for races with streams.
    ///
    /// # Errors
    ///
    /// If the driver refuses it.
    pub fn host_access(&self, name: &str, access: KernelAccess) -> Result<()> {
        // SAFETY: the name is valid during the call.
        let code = unsafe { (self.0.host_access)(name.as_ptr(), name.len(), access.raw()) };
        check("host_access", code)
    }

    /// Returns the races so far, at most the first thousand.
    #[must_use]
    pub fn races(&self) -> Vec<RaceReport> {
        self.collect_races(false)
    }

    /// Returns the races so far, and forgets them.
    #[must_use]
    pub fn take_races(&self) -> Vec<RaceReport> {
        self.collect_races(true)
    }

    fn collect_races(&self, clear: bool) -> Vec<RaceReport> {
        extern "C" fn sink(context: *mut c_void, race: *const SimRace) {
            // SAFETY: the simulation passes a pointer to a race that is valid during the call.
            let race = unsafe { &*race };
            let race = RaceReport { earlier: access(&race.earlier), later: access(&race.later) };
            push(context, race);
        }
        let mut races: Vec<RaceReport> = Vec::new();
        // SAFETY: the sink gets the vector of its type, which nothing else uses during the call.
        unsafe { (self.0.races)((&raw mut races).cast(), sink, clear) };
        races
    }

    /// Returns how often a function was called, by the name that it is exported under.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.all_calls().get(function).copied().unwrap_or(0)
    }

    /// Returns every called function with the number of its calls.
    #[must_use]
    pub fn all_calls(&self) -> BTreeMap<String, u64> {
        self.collect_calls(false)
    }

    /// Returns every called function with the number of its calls, and starts counting anew.
    #[must_use = "to only start anew, drop the result"]
    pub fn take_calls(&self) -> BTreeMap<String, u64> {
        self.collect_calls(true)
    }

    fn collect_calls(&self, clear: bool) -> BTreeMap<String, u64> {
        extern "C" fn sink(context: *mut c_void, name: *const u8, length: usize, calls: u64) {
            push(context, (text(name, length), calls));
        }
        let mut calls: Vec<(String, u64)> = Vec::new();
        // SAFETY: the sink gets the vector of its type, which nothing else uses during the call.
        unsafe { (self.0.calls)((&raw mut calls).cast(), sink, clear) };
        calls.into_iter().collect()
    }

    /// Returns why the last module or launch of PTX was refused or failed: the function, the line and the
    /// instruction, or what went wrong there.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        extern "C" fn sink(context: *mut c_void, refusal: *const u8, length: usize) {
            push(context, text(refusal, length));
        }
        let mut found: Vec<String> = Vec::new();
        // SAFETY: the sink gets the vector of its type, which nothing else uses during the call.
        unsafe { (self.0.refusal)((&raw mut found).cast(), sink) };
        found.pop()
    }

    /// Fails the `nth` call from now, at least 1, of a function (`*`: any) with a `CUresult`.
    ///
    /// A code after which a real context is unusable (700, 719 …) makes the current context unusable.
    ///
    /// # Errors
    ///
    /// If the driver refuses it.
    pub fn fail(&self, function: &str, nth: u64, code: i32) -> Result<()> {
        self.fail_times(function, nth, 1, code)
    }

    /// Fails `count` calls of a function (`*`: any), beginning with the `nth` from now.
    ///
    /// # Errors
    ///
    /// If the driver refuses it.
    pub fn fail_times(&self, function: &str, nth: u64, count: u64, code: i32) -> Result<()> {
        // SAFETY: the name is valid during the call.
        check("fail", unsafe { (self.0.fail)(function.as_ptr(), function.len(), nth, count, code) })
    }

    /// Removes the faults that are still to come.
    pub fn clear_faults(&self) {
        // SAFETY: no precondition.
        unsafe { (self.0.clear_faults)() };
    }

    /// Makes every later call on the context of a device return a `CUresult`; 0 ends that.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    pub fn poison(&self, device: usize, code: i32) -> Result<()> {
        // SAFETY: no precondition.
        check("poison", unsafe { (self.0.poison)(device, code) })
    }

    /// Returns the used bytes of a device.
    #[must_use]
    pub fn used_memory(&self, device: usize) -> u64 {
        // SAFETY: no precondition.
        unsafe { (self.0.used)(device) }
    }

    /// Returns everything that is allocated: what a test that ends with some of it leaks.
    #[must_use]
    pub fn live_allocations(&self) -> Vec<LiveAllocation> {
        extern "C" fn sink(context: *mut c_void, found: SimAllocation) {
            push(context, found);
        }
        let mut found: Vec<SimAllocation> = Vec::new();
        // SAFETY: the sink gets the vector of its type, which nothing else uses during the call.
        unsafe { (self.0.allocations)((&raw mut found).cast(), sink) };
        found.iter().map(live).collect()
    }

    /// Returns the counts of what is alive and what happened.
    #[must_use]
    pub fn counts(&self) -> DriverCounts {
        let raw = self.raw_counts();
        DriverCounts {
            streams: raw.streams,
            events: raw.events,
            graphs: raw.graphs,
            operations: raw.operations,
            races: raw.races,
            waits: raw.waits,
            waited: Duration::from_nanos(raw.waited_ns),
            pinned: raw.pinned,
            modules: raw.modules,
            queues: raw.queues,
            ranges: raw.ranges,
            rdma_pages: raw.rdma_pages,
        }
    }

    fn raw_counts(&self) -> SimCounts {
        let mut counts = SimCounts::default();
        // SAFETY: the structure is valid for writes.
        unsafe { (self.0.counts)(&raw mut counts) };
        counts
    }

    /// Copies `bytes` bytes of simulated memory out, as they are now and without a check for races.
    ///
    /// # Errors
    ///
    /// If part of the range is not allocated or mapped.
    pub fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>> {
        let mut copied = vec![0; bytes];
        // SAFETY: the vector has `bytes` bytes.
        check("read", unsafe { (self.0.read)(address, copied.as_mut_ptr(), bytes) })?;
        Ok(copied)
    }

    /// Copies bytes into simulated memory now, without a check for races.
    ///
    /// # Errors
    ///
    /// If part of the range is not allocated or mapped.
    pub fn write(&self, address: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the slice is valid for reads of its length.
        check("write", unsafe { (self.0.write)(address, bytes.as_ptr(), bytes.len()) })
    }
}

/// Adds a value to the vector that a sink's context points to.
fn push<T>(context: *mut c_void, value: T) {
    // SAFETY: each sink above gets a pointer to a vector of the type it pushes, for the time of the call.
    let values = unsafe { &mut *context.cast::<Vec<T>>() };
    values.push(value);
}

fn text(name: *const u8, length: usize) -> String {
    // SAFETY: the simulation passes UTF-8 text of this length, valid during the call.
    let name = unsafe { slice::from_raw_parts(name, length) };
    String::from_utf8_lossy(name).into_owned()
}

fn access(found: &SimAccessReport) -> RaceAccess {
    RaceAccess {
        name: text(found.name, found.name_length),
        stream: (found.stream != u64::MAX).then_some(found.stream),
        is_write: found.is_write,
        is_atomic: found.is_atomic,
        address: found.address,
        bytes: found.bytes,
        time: Duration::from_nanos(found.time),
    }
}

fn live(found: &SimAllocation) -> LiveAllocation {
    let kind = match found.kind {
        0 => LiveKind::Device,
        1 => LiveKind::Managed,
        2 => LiveKind::Pinned,
        3 => LiveKind::Registered,
        4 => LiveKind::Pooled,
        5 => LiveKind::Physical,
        _ => LiveKind::Reservation,
    };
    LiveAllocation { kind, address: found.address, bytes: found.bytes, device: found.device }
}
