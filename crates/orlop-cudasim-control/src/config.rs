//! [`SimulationConfig`]: the simulated machine; [`DriverOptions`]: how the driver is loaded.

use std::time::Duration;

/// The variable of the environment that makes the driver do what real ones do without a promise.
const LENIENT: &str = "ORLOP_CUDASIM_LENIENT";

/// The simulated machine. The default: one device of 1 GiB, version 13.0, everything supported except access
/// between devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationConfig {
    pub(crate) devices: Vec<u64>,
    pub(crate) pinned_limit: u64,
    pub(crate) version: i32,
    pub(crate) seed: u64,
    pub(crate) call_time: Duration,
    pub(crate) operation_time: Duration,
    pub(crate) bytes_per_microsecond: u64,
    pub(crate) granularity: usize,
    pub(crate) has_poison: bool,
    pub(crate) has_pools: bool,
    pub(crate) has_virtual_memory: bool,
    pub(crate) has_rdma: bool,
    pub(crate) page_handle_types: i32,
    pub(crate) has_peer_access: bool,
    pub(crate) frees_wait: bool,
    pub(crate) pools_wait: bool,
    pub(crate) modules_wait: bool,
    pub(crate) shares_access: bool,
    pub(crate) has_unique_handles: bool,
    pub(crate) launch_queue: usize,
}

impl Default for SimulationConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulationConfig {
    /// Creates the default configuration.
    #[must_use]
    pub fn new() -> Self {
        let is_lenient = std::env::var_os(LENIENT).is_some();
        Self {
            devices: vec![1 << 30],
            pinned_limit: u64::MAX,
            version: 13_000,
            seed: 0,
            call_time: Duration::from_nanos(200),
            operation_time: Duration::from_nanos(2_000),
            bytes_per_microsecond: 20_000,
            granularity: 2 << 20,
            has_poison: true,
            has_pools: true,
            has_virtual_memory: true,
            has_rdma: true,
            page_handle_types: 1,
            has_peer_access: false,
            frees_wait: is_lenient,
            pools_wait: is_lenient,
            modules_wait: is_lenient,
            shares_access: is_lenient,
            has_unique_handles: is_lenient,
            launch_queue: if is_lenient { usize::MAX } else { 1024 },
        }
    }

    /// Sets the memory of each device in bytes; the number of devices follows. An empty list makes `cuInit`
    /// return `CUDA_ERROR_NO_DEVICE`.
    #[must_use]
    pub fn devices(mut self, memory: impl Into<Vec<u64>>) -> Self {
        self.devices = memory.into();
        self
    }

    /// Sets the memory of a single device in bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        self.devices([bytes])
    }

    /// Sets the largest sum of pinned host memory in bytes.
    #[must_use]
    pub fn pinned_limit(mut self, bytes: u64) -> Self {
        self.pinned_limit = bytes;
        self
    }

    /// Sets what `cuDriverGetVersion` returns: 12040 for 12.4.
    #[must_use]
    pub fn version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// Sets the seed that the durations of operations follow from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the virtual time that each call of the host takes.
    #[must_use]
    pub fn call_time(mut self, time: Duration) -> Self {
        self.call_time = time;
        self
    }

    /// Sets the typical fixed time of an operation; the real one is between half and one and a half of it.
    #[must_use]
    pub fn operation_time(mut self, time: Duration) -> Self {
        self.operation_time = time;
        self
    }

    /// Sets the typical speed of copies and fills in bytes per microsecond.
    #[must_use]
    pub fn bytes_per_microsecond(mut self, bytes: u64) -> Self {
        self.bytes_per_microsecond = bytes;
        self
    }

    /// Sets the granularity of virtual memory in bytes: a power of two of at least 64 KiB.
    #[must_use]
    pub fn granularity(mut self, bytes: usize) -> Self {
        self.granularity = bytes;
        self
    }

    /// Sets whether new memory is filled with `0xCD` and freed memory with `0xDD`. Without it, large
    /// simulated memories cost only the pages that a program touches.
    #[must_use]
    pub fn poison(mut self, has_poison: bool) -> Self {
        self.has_poison = has_poison;
        self
    }

    /// Sets whether `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister` wait for the device. Driver 580
    /// does, and no documentation promises it. Without it, a free is an access of the host, which
    /// races with work that has not finished. By default they wait if the environment has the variable
    /// `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn waiting_frees(mut self, frees_wait: bool) -> Self {
        self.frees_wait = frees_wait;
        self
    }

    /// Sets whether an allocation from a memory pool waits for pending frees of that pool before it fails.
    /// Driver 580 does, and no documentation says so. By default it does if the environment has the variable
    /// `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn waiting_pools(mut self, pools_wait: bool) -> Self {
        self.pools_wait = pools_wait;
        self
    }

    /// Sets whether to load and to unload a module waits for the device, and is allowed while a capture
    /// forbids calls that may wait. Driver 580 does so; without it, both are such calls, and wait for
    /// nothing. By default they wait if the environment has the variable `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn waiting_modules(mut self, modules_wait: bool) -> Self {
        self.modules_wait = modules_wait;
        self
    }

    /// Sets whether every device can access what one of them can. Without it, a kernel or a fill of a device
    /// accesses memory of another one only if that was allowed: by `cuCtxEnablePeerAccess` for memory of
    /// `cuMemAlloc`, by `cuMemPoolSetAccess` for that of pools, and by `cuMemSetAccess` for mapped memory,
    /// where that counts for copies too. By default they can if the environment has the variable
    /// `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn shared_access(mut self, shares_access: bool) -> Self {
        self.shares_access = shares_access;
        self
    }

    /// Sets whether the handle of a destroyed stream, event, memory pool or page is never given again.
    /// Without it, the next one gets it, as driver 580 often does. By default handles are unique if the
    /// environment has the variable `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn unique_handles(mut self, has_unique_handles: bool) -> Self {
        self.has_unique_handles = has_unique_handles;
        self
    }

    /// Sets the number of operations in a stream from which on a submission to it waits, at least 1. By
    /// default it is 1024, or unlimited if the environment has the variable `ORLOP_CUDASIM_LENIENT`.
    #[must_use]
    pub fn launch_queue(mut self, operations: usize) -> Self {
        self.launch_queue = operations;
        self
    }

    /// Sets whether the devices have memory pools.
    #[must_use]
    pub fn pools(mut self, has_pools: bool) -> Self {
        self.has_pools = has_pools;
        self
    }

    /// Sets whether the devices have virtual memory management.
    #[must_use]
    pub fn virtual_memory(mut self, has_virtual_memory: bool) -> Self {
        self.has_virtual_memory = has_virtual_memory;
        self
    }

    /// Sets whether pages can be flagged for other hardware (GPUDirect RDMA).
    #[must_use]
    pub fn rdma(mut self, has_rdma: bool) -> Self {
        self.has_rdma = has_rdma;
        self
    }

    /// Sets how pages can be exported to other processes: by file descriptors (by default), and by fabric
    /// handles.
    #[must_use]
    pub fn page_handles(mut self, file_descriptors: bool, fabric: bool) -> Self {
        self.page_handle_types = i32::from(file_descriptors) | i32::from(fabric) << 3;
        self
    }

    /// Sets whether devices can access each other's memory.
    #[must_use]
    pub fn peer_access(mut self, has_peer_access: bool) -> Self {
        self.has_peer_access = has_peer_access;
        self
    }
}

/// How the driver is loaded. A process loads it once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverOptions {
    pub(crate) missing: Vec<String>,
}

impl DriverOptions {
    /// Creates the default options: every symbol is there.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes an exported function, as in a driver that is older than the function.
    #[must_use]
    pub fn without_symbol(mut self, symbol: &str) -> Self {
        self.missing.push(symbol.to_owned());
        self
    }
}
