//! [`Kernel`] and [`Launch`]: what a kernel does is a function that the program registered under its name, or
//! else its PTX.

use super::host_thread::as_callback;
use crate::codes::{CUresult, Failure};
use crate::control::{SimAccess, SimKernel, SimLaunch};
use crate::memory::{Memory, MemoryAccess};
use crate::ptx::{AccessedMemory, Fault, Program, Recorder, Shape};
use std::ffi::c_void;
use std::sync::Arc;

/// A registered kernel. It is called from whichever thread completes the operation.
#[derive(Debug)]
pub(crate) struct Kernel(SimKernel);

// SAFETY: the caller that registers a kernel guarantees that its functions can be called from any thread, one
// call at a time (`SimKernel`).
unsafe impl Send for Kernel {}
// SAFETY: as above; all calls are made with the driver locked.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The driver may be locked: code of the program that runs now must not call it.
        as_callback(|| {
            // SAFETY: the kernel owns its context, and this is its last use.
            unsafe { (self.0.drop)(self.0.context) };
        });
    }
}

impl Kernel {
    pub(crate) fn new(kernel: SimKernel) -> Self {
        Self(kernel)
    }
}

/// What a kernel does.
#[derive(Debug, Clone)]
pub(crate) enum KernelCode {
    /// A function of the program.
    Registered(Arc<Kernel>),
    Ptx(Arc<Program>),
}

/// A launch, with a copy of its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) name: Arc<str>,
    code: KernelCode,
    shape: Shape,
    shared: u32,
    arguments: Vec<Vec<u8>>,
    /// For PTX, what it accesses, or how it fails.
    traced: Result<Vec<MemoryAccess>, Fault>,
}

/// What a launch accesses.
#[derive(Debug)]
pub(crate) struct LaunchTrace {
    /// `NOT_SUPPORTED` if PTX accesses what only its data decides.
    pub(crate) accesses: Result<Vec<MemoryAccess>, Fault>,
    /// Accesses of two threads of the launch to the same bytes, without a barrier between them.
    pub(crate) race: Option<(MemoryAccess, MemoryAccess)>,
}

impl Launch {
    pub(crate) fn new(
        name: Arc<str>,
        code: KernelCode,
        shape: Shape,
        shared: u32,
        arguments: Vec<Vec<u8>>,
    ) -> Self {
        Self { name, code, shape, shared, arguments, traced: Ok(Vec::new()) }
    }

    /// Finds the memory that the kernel accesses. A launch that fails accesses none.
    pub(crate) fn trace(&mut self, memory: &Memory) -> LaunchTrace {
        let program = match &self.code {
            KernelCode::Registered(kernel) => {
                return LaunchTrace { accesses: Ok(self.declared(kernel)), race: None };
            }
            KernelCode::Ptx(program) => program,
        };
        let mut recorder = Recorder::default();
        let traced = program.execute(self.shape, self.shared, &self.arguments, &mut recorder);
        let race = recorder.race();
        self.traced = traced.map(|()| {
            let found = recorder.finish();
            found.into_iter().flat_map(|access| memory.by_allocation(access)).collect()
        });
        let accesses = match &self.traced {
            Err(fault) if fault.failure == Failure::NOT_SUPPORTED => Err(fault.clone()),
            traced => Ok(traced.clone().unwrap_or_default()),
        };
        LaunchTrace { accesses, race }
    }

    fn with_record<R>(&self, function: impl FnOnce(&SimLaunch) -> R) -> R {
        let pointers: Vec<*const u8> = self.arguments.iter().map(|argument| argument.as_ptr()).collect();
        let sizes: Vec<usize> = self.arguments.iter().map(Vec::len).collect();
        function(&SimLaunch {
            name: self.name.as_ptr(),
            name_length: self.name.len(),
            grid: self.shape.grid,
            block: self.shape.block,
            shared: self.shared,
            arguments: pointers.as_ptr(),
            argument_sizes: sizes.as_ptr(),
            argument_count: sizes.len(),
        })
    }

    /// Returns the memory that a registered kernel says it accesses.
    fn declared(&self, kernel: &Kernel) -> Vec<MemoryAccess> {
        extern "C" fn sink(accesses: *mut c_void, access: SimAccess) {
            // SAFETY: the pointer is the one that `accesses` passes along with this function, to a vector
            // that nothing else uses until the call returns.
            let accesses = unsafe { &mut *accesses.cast::<Vec<MemoryAccess>>() };
            accesses.push(MemoryAccess::from(access));
        }
        let mut accesses: Vec<MemoryAccess> = Vec::new();
        let pointer: *mut Vec<MemoryAccess> = &raw mut accesses;
        as_callback(|| {
            self.with_record(|record| {
                let SimKernel { context, accesses, .. } = kernel.0;
                // SAFETY: the context is the kernel's own, and the record is valid during the call.
                unsafe { accesses(context, record, pointer.cast(), sink) };
            });
        });
        accesses
    }

    /// Runs the kernel.
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let kernel = match &self.code {
            KernelCode::Registered(kernel) => kernel,
            KernelCode::Ptx(program) => {
                let accesses = self.traced.as_ref().map_err(Clone::clone)?;
                let memory = &mut AccessedMemory::new(accesses);
                return program.execute(self.shape, self.shared, &self.arguments, memory);
            }
        };
        let code: CUresult = self.with_record(|record| {
            let SimKernel { context, run, .. } = kernel.0;
            // SAFETY: the context is the kernel's own, and the record is valid during the call.
            unsafe { run(context, record) }
        });
        if code == 0 { Ok(()) } else { Err(Fault { failure: Failure(code), place: self.name.to_string() }) }
    }
}
