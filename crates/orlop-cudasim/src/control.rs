//! The interface of tests to the simulation: not part of CUDA, reached with `dlsym` beside the driver's
//! calls.
//!
//! `orlop-cudasim-control` wraps it in a safe handle; use that. The types here are its C layout.

use std::ffi::c_void;

/// The configuration of the simulated machine.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimConfiguration {
    /// Memory of each device in bytes: `device_count` numbers.
    pub devices: *const u64,
    /// The number of devices.
    pub device_count: usize,
    /// The most pinned bytes.
    pub pinned_limit: u64,
    /// What `cuDriverGetVersion` returns.
    pub version: i32,
    /// The seed of the durations.
    pub seed: u64,
    /// Virtual time that each call of the host takes, in nanoseconds.
    pub call_ns: u64,
    /// Typical fixed time of an operation in nanoseconds.
    pub op_ns: u64,
    /// Typical bytes that a copy or fill moves in a microsecond.
    pub bytes_per_us: u64,
    /// Granularity of virtual memory in bytes, a power of two of at least 64 KiB.
    pub granularity: usize,
    /// Whether new and freed memory is overwritten.
    pub has_poison: bool,
    /// Whether the devices have memory pools.
    pub has_pools: bool,
    /// Whether the devices have virtual memory management.
    pub has_vmm: bool,
    /// Whether physical memory can be flagged for other hardware.
    pub has_rdma: bool,
    /// The `CU_MEM_HANDLE_TYPE_*` bits by which physical memory is exported: 1, a descriptor; 8, fabric.
    pub page_handle_types: i32,
    /// Whether devices can access each other's memory.
    pub has_peer_access: bool,
    /// Whether `cuMemFree` and `cuMemFreeHost` wait for the device.
    pub frees_wait: bool,
    /// Whether an allocation from a pool waits for pending frees before it fails.
    pub pools_wait: bool,
    /// Whether to load and to unload a module waits for the device, and is allowed in captures.
    pub modules_wait: bool,
    /// Whether every device can access what one of them can.
    pub shares_access: bool,
    /// Whether the handle of a destroyed stream, event, pool or page is never given again.
    pub has_unique_handles: bool,
    /// The number of operations in a stream from which on a submission waits.
    pub launch_queue: usize,
}

/// An access to memory by a simulated kernel.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimAccess {
    /// The first address.
    pub address: usize,
    /// The number of bytes.
    pub bytes: usize,
    /// Whether they are written.
    pub is_write: bool,
}

/// A launch of a kernel.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimLaunch {
    /// The name, UTF-8 without terminator.
    pub name: *const u8,
    /// Its length in bytes.
    pub name_length: usize,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Each argument's bytes: `argument_count` pointers.
    pub arguments: *const *const u8,
    /// Each argument's size.
    pub argument_sizes: *const usize,
    /// The number of arguments.
    pub argument_count: usize,
}

/// Receives one access.
pub type SimAccessSink = extern "C" fn(*mut c_void, SimAccess);

/// What a kernel does. Its functions can be called from any thread, one call at a time, and must not call the
/// driver.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimKernel {
    /// Passed to each function.
    pub context: *mut c_void,
    /// Reports the accesses of a launch, when it is submitted.
    pub accesses: unsafe extern "C" fn(*mut c_void, *const SimLaunch, *mut c_void, SimAccessSink),
    /// Runs when virtual time passes the end of the kernel; returns a `CUresult`.
    pub run: unsafe extern "C" fn(*mut c_void, *const SimLaunch) -> i32,
    /// Frees the context.
    pub drop: unsafe extern "C" fn(*mut c_void),
}

/// An access in a report.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimAccessReport {
    /// The call or kernel, UTF-8 without terminator.
    pub name: *const u8,
    /// Its length in bytes.
    pub name_length: usize,
    /// The stream's handle; the largest number for the host itself.
    pub stream: u64,
    /// Whether the access writes.
    pub is_write: bool,
    /// Whether it is an atomic update.
    pub is_atomic: bool,
    /// The first address.
    pub address: usize,
    /// The number of bytes.
    pub bytes: usize,
    /// When it was submitted, in nanoseconds of virtual time.
    pub time: u64,
}

/// Two accesses that race.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimRace {
    /// The access that was submitted first.
    pub earlier: SimAccessReport,
    /// The other.
    pub later: SimAccessReport,
}

/// A live allocation.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SimAllocation {
    /// The address, or the handle of physical memory.
    pub address: u64,
    /// The number of bytes.
    pub bytes: usize,
    /// The device.
    pub device: usize,
    /// 0 device, 1 managed, 2 pinned, 3 registered, 4 from a pool, 5 physical, 6 reservation.
    pub kind: u32,
}

/// Counts of what is alive and what happened.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct SimCounts {
    /// Virtual time in nanoseconds.
    pub now: u64,
    /// Streams that the program created and did not destroy.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Graphs and executables.
    pub graphs: u64,
    /// Operations that have not completed.
    pub operations: u64,
    /// Races, those not kept included.
    pub races: u64,
    /// Times that the host waited.
    pub waits: u64,
    /// Virtual time that the host waited, in nanoseconds.
    pub waited_ns: u64,
    /// Pinned bytes.
    pub pinned: u64,
    /// Loaded modules.
    pub modules: u64,
    /// Queues in the order of work: a measure of the check's own memory.
    pub queues: u64,
    /// Separately kept ranges of past accesses.
    pub ranges: u64,
    /// Physical allocations so far that were flagged for other hardware.
    pub rdma_pages: u64,
}
