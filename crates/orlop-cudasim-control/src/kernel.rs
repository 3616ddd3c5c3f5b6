//! Simulated kernels: Rust code that stands for the code of a device.

use orlop_cudasim::control::{SimAccess, SimAccessSink, SimKernel, SimLaunch};
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Mutex;

/// `CUDA_ERROR_ILLEGAL_ADDRESS`, `CUDA_ERROR_LAUNCH_FAILED`: both make the context unusable.
const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_FAILED: i32 = 719;

/// A range of memory that a kernel reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelAccess {
    address: usize,
    bytes: usize,
    is_write: bool,
}

impl KernelAccess {
    /// Creates a read of `bytes` bytes.
    #[must_use]
    pub fn read(address: usize, bytes: usize) -> Self {
        Self { address, bytes, is_write: false }
    }

    /// Creates a write of `bytes` bytes. A kernel that writes a range may read it too.
    #[must_use]
    pub fn write(address: usize, bytes: usize) -> Self {
        Self { address, bytes, is_write: true }
    }

    pub(crate) fn raw(self) -> SimAccess {
        SimAccess { address: self.address, bytes: self.bytes, is_write: self.is_write }
    }

    fn covers(&self, bytes: &Range<usize>) -> bool {
        self.address <= bytes.start && bytes.end - self.address <= self.bytes
    }
}

/// A launch of a registered kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCall {
    /// The name of the kernel.
    pub name: String,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The bytes of each argument.
    pub arguments: Vec<Vec<u8>>,
}

impl KernelCall {
    /// Returns an argument of 8 bytes: an address or a 64-bit number. 0 if there is no such argument.
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.fixed(index).map_or(0, u64::from_ne_bytes)
    }

    /// Returns an argument of 8 bytes as an address. 0 if there is no such argument.
    #[must_use]
    pub fn address(&self, index: usize) -> usize {
        self.fixed(index).map_or(0, usize::from_ne_bytes)
    }

    /// Returns an argument of 4 bytes. 0 if there is no such argument.
    #[must_use]
    pub fn half_word(&self, index: usize) -> u32 {
        self.fixed(index).map_or(0, u32::from_ne_bytes)
    }

    fn fixed<const N: usize>(&self, index: usize) -> Option<[u8; N]> {
        <[u8; N]>::try_from(self.arguments.get(index)?.as_slice()).ok()
    }

    fn from_raw(launch: *const SimLaunch) -> Self {
        // SAFETY: the simulation passes a pointer to a launch that is valid during the call.
        let launch = unsafe { &*launch };
        // SAFETY: name and length describe UTF-8 text that is valid during the call.
        let name = unsafe { slice::from_raw_parts(launch.name, launch.name_length) };
        let count = launch.argument_count;
        // SAFETY: there are `count` pointers, valid during the call.
        let pointers = unsafe { slice::from_raw_parts(launch.arguments, count) };
        // SAFETY: there are `count` sizes, valid during the call.
        let sizes = unsafe { slice::from_raw_parts(launch.argument_sizes, count) };
        let arguments = pointers.iter().zip(sizes).map(|(&bytes, &size)| {
            // SAFETY: each argument has its size in bytes, valid during the call.
            unsafe { slice::from_raw_parts(bytes, size) }.to_vec()
        });
        Self {
            name: String::from_utf8_lossy(name).into_owned(),
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared,
            arguments: arguments.collect(),
        }
    }
}

/// The memory of a running kernel: the ranges that it declared. Any other access is an illegal address.
#[derive(Debug)]
pub struct KernelMemory {
    accesses: Vec<KernelAccess>,
    is_illegal: bool,
}

impl KernelMemory {
    /// Copies bytes out. An undeclared range fails the kernel, and reads as zero.
    pub fn read(&mut self, address: usize, bytes: usize) -> Vec<u8> {
        let mut copied = vec![0; bytes];
        if self.allows(address, bytes, false) {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: the simulation checked just before the kernel runs that all declared ranges are
            // mapped, and nothing else accesses them until it returns; the vector has `bytes` bytes of its
            // own.
            unsafe { from.copy_to_nonoverlapping(copied.as_mut_ptr(), bytes) };
        }
        copied
    }

    /// Copies bytes in. An undeclared range fails the kernel.
    pub fn write(&mut self, address: usize, bytes: &[u8]) {
        if self.allows(address, bytes.len(), true) {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: the simulation checked just before the kernel runs that all declared ranges are
            // mapped, and nothing else accesses them until it returns.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }

    fn allows(&mut self, address: usize, bytes: usize, is_write: bool) -> bool {
        let range = address..address.saturating_add(bytes);
        let allowed =
            self.accesses.iter().any(|access| (access.is_write || !is_write) && access.covers(&range));
        self.is_illegal |= !allowed;
        allowed
    }
}

/// What a kernel accesses and does. Its code runs when virtual time passes its end, with the driver locked:
/// it must not call the driver.
pub trait SimulatedKernel: Send + 'static {
    /// Returns the memory that a launch accesses. Called when it is submitted.
    fn accesses(&self, call: &KernelCall) -> Vec<KernelAccess>;

    /// Runs a launch.
    fn run(&mut self, call: &KernelCall, memory: &mut KernelMemory);
}

impl<A, R> SimulatedKernel for (A, R)
where
    A: Fn(&KernelCall) -> Vec<KernelAccess> + Send + 'static,
    R: FnMut(&KernelCall, &mut KernelMemory) + Send + 'static,
{
    fn accesses(&self, call: &KernelCall) -> Vec<KernelAccess> {
        (self.0)(call)
    }

    fn run(&mut self, call: &KernelCall, memory: &mut KernelMemory) {
        (self.1)(call, memory);
    }
}

type KernelBox = Mutex<Box<dyn SimulatedKernel>>;

/// Returns the C form of a kernel, which owns it.
pub(crate) fn raw(kernel: Box<dyn SimulatedKernel>) -> SimKernel {
    let context: *mut KernelBox = Box::into_raw(Box::new(Mutex::new(kernel)));
    SimKernel { context: context.cast(), accesses: call_accesses, run: call_run, drop: call_drop }
}

/// Returns a kernel's result, or `None` if it panicked.
fn with_kernel<R>(context: *mut c_void, function: impl FnOnce(&mut dyn SimulatedKernel) -> R) -> Option<R> {
    // SAFETY: the context is the box that `raw` made, which lives until `call_drop`.
    let kernel = unsafe { &*context.cast::<KernelBox>() };
    let mut kernel = kernel.lock().ok()?;
    catch_unwind(AssertUnwindSafe(|| function(kernel.as_mut()))).ok()
}

unsafe extern "C" fn call_accesses(
    context: *mut c_void,
    launch: *const SimLaunch,
    sink_context: *mut c_void,
    sink: SimAccessSink,
) {
    let call = KernelCall::from_raw(launch);
    let accesses = with_kernel(context, |kernel| kernel.accesses(&call)).unwrap_or_default();
    for access in accesses {
        sink(sink_context, access.raw());
    }
}

unsafe extern "C" fn call_run(context: *mut c_void, launch: *const SimLaunch) -> i32 {
    let call = KernelCall::from_raw(launch);
    let ran = with_kernel(context, |kernel| {
        let mut memory = KernelMemory { accesses: kernel.accesses(&call), is_illegal: false };
        kernel.run(&call, &mut memory);
        memory.is_illegal
    });
    match ran {
        Some(false) => 0,
        Some(true) => ILLEGAL_ADDRESS,
        None => LAUNCH_FAILED,
    }
}

unsafe extern "C" fn call_drop(context: *mut c_void) {
    // SAFETY: the context is the box that `raw` made, and this is its last use.
    drop(unsafe { Box::from_raw(context.cast::<KernelBox>()) });
}

/// A kernel to run on a stream without a module: what it accesses, how long it takes, and what it does.
#[must_use]
pub struct KernelRun {
    pub(crate) name: String,
    pub(crate) accesses: Vec<KernelAccess>,
    pub(crate) nanoseconds: u64,
    pub(crate) effect: Box<dyn FnMut(&mut KernelMemory) + Send>,
}

impl std::fmt::Debug for KernelRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelRun").field("name", &self.name).field("accesses", &self.accesses).finish()
    }
}

impl KernelRun {
    /// Creates a kernel of 5 µs without accesses or effect.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), accesses: Vec::new(), nanoseconds: 5_000, effect: Box::new(|_| {}) }
    }

    /// Adds a read of `bytes` bytes.
    pub fn reads(mut self, address: usize, bytes: usize) -> Self {
        self.accesses.push(KernelAccess::read(address, bytes));
        self
    }

    /// Adds a write of `bytes` bytes.
    pub fn writes(mut self, address: usize, bytes: usize) -> Self {
        self.accesses.push(KernelAccess::write(address, bytes));
        self
    }

    /// Sets the duration in virtual time. `Duration::MAX`: it never ends, and a wait for it returns
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`.
    pub fn takes(mut self, time: std::time::Duration) -> Self {
        self.nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Sets what it does to the memory that it declared. A captured kernel runs once for each launch.
    pub fn effect(mut self, effect: impl FnMut(&mut KernelMemory) + Send + 'static) -> Self {
        self.effect = Box::new(effect);
        self
    }

    pub(crate) fn into_kernel(self) -> (Vec<SimAccess>, u64, SimKernel) {
        let Self { accesses, nanoseconds, mut effect, .. } = self;
        let raw_accesses = accesses.iter().map(|access| access.raw()).collect();
        let kernel = (
            move |_: &KernelCall| accesses.clone(),
            move |_: &KernelCall, memory: &mut KernelMemory| {
                effect(memory);
            },
        );
        (raw_accesses, nanoseconds, raw(Box::new(kernel)))
    }
}
