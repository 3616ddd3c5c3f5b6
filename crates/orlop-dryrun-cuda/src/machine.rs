//! [`Machine`]: everything that the libraries know.

use crate::call;
use crate::caller::Guess;
use crate::code::{Failure, Outcome};
use crate::cudnn::{Descriptors, RecurrentLayers, Workspaces};
use crate::exports::SparseMatrix;
use crate::state::communicator::Communicator;
use crate::state::contents::Contents;
use crate::state::counters::Counters;
use crate::state::host_memory::HostMemory;
use crate::state::kernels::Kernels;
use crate::state::memory::DeviceMemory;
use crate::state::sizes::{SizeResult, is_integer_maximum, is_second_pass};
use crate::state::thread::{self, ThreadState};
use crate::state::work::Work;
use orlop_dryrun::gpu::GpuModel;
use orlop_dryrun::settings::DryRunSettings;
use std::collections::HashMap;

/// The bytes of a variable of a device: its size is not known, and few are larger.
const SYMBOL_BYTES: usize = 512;

/// The state of a dry run.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) settings: DryRunSettings,
    pub(crate) memory: DeviceMemory,
    pub(crate) host: HostMemory,
    pub(crate) contents: Contents,
    pub(crate) work: Work,
    pub(crate) kernels: Kernels,
    pub(crate) counters: Counters,
    pub(crate) descriptors: Descriptors,
    pub(crate) workspaces: Workspaces,
    /// The streams of handles of cuBLAS and cuDNN.
    pub(crate) streams_of_handles: HashMap<usize, usize>,
    pub(crate) communicators: HashMap<usize, Communicator>,
    pub(crate) recurrent: RecurrentLayers,
    pub(crate) sparse_matrices: HashMap<usize, SparseMatrix>,
    /// What the threads of the program did last, by their numbers.
    threads: HashMap<i32, ThreadState>,
    /// The addresses of variables, by device and symbol.
    symbols: HashMap<(usize, usize), usize>,
    next_handle: usize,
}

impl Machine {
    /// Creates the machine that the environment describes. An invalid setting is printed and has its default,
    /// because a call of CUDA has no way to return it.
    pub(crate) fn from_environment() -> Self {
        let settings =
            DryRunSettings::from_variables(|name| std::env::var_os(name)).unwrap_or_else(|error| {
                eprintln!("orlop dry-run: {error}");
                DryRunSettings::new(orlop_dryrun::gpu::GPU_MODELS[0].clone())
            });
        Self::new(settings)
    }

    pub(crate) fn new(settings: DryRunSettings) -> Self {
        let workspaces = Workspaces::read(settings.convolutions.as_deref(), settings.workspaces);
        Self {
            memory: DeviceMemory::new(settings.gpu.usable(), settings.devices),
            host: HostMemory::default(),
            contents: Contents::default(),
            work: Work::new(settings.completion),
            kernels: Kernels::default(),
            counters: Counters::default(),
            descriptors: Descriptors::default(),
            workspaces,
            streams_of_handles: HashMap::new(),
            communicators: HashMap::new(),
            recurrent: RecurrentLayers::default(),
            sparse_matrices: HashMap::new(),
            threads: HashMap::new(),
            symbols: HashMap::new(),
            next_handle: 0x1000,
            settings,
        }
    }

    pub(crate) fn gpu(&self) -> &GpuModel {
        &self.settings.gpu
    }

    /// Returns a new handle, which no other object has.
    pub(crate) fn handle(&mut self) -> usize {
        self.next_handle += 0x40;
        self.next_handle
    }

    /// Returns the state of the calling thread.
    pub(crate) fn thread(&mut self) -> &mut ThreadState {
        self.threads.entry(thread::number()).or_default()
    }

    /// Returns the index of a device of a caller.
    pub(crate) fn device(&self, device: i32) -> Outcome<usize> {
        let index = usize::try_from(device).map_err(|_| Failure::INVALID_DEVICE)?;
        if index < self.memory.devices() { Ok(index) } else { Err(Failure::INVALID_DEVICE) }
    }

    /// Returns the current device of the thread.
    pub(crate) fn current_device(&self) -> usize {
        call::device().min(self.memory.devices() - 1)
    }

    /// Returns the free bytes of the current device, and all of its bytes.
    pub(crate) fn memory_info(&self) -> (u64, u64) {
        (self.memory.free_bytes(self.current_device()), self.gpu().memory)
    }

    /// Frees memory, unless the address is null, when the work of all streams is done.
    pub(crate) fn free_after_work(&mut self, address: usize) -> Outcome {
        self.work.wait_for_all();
        if address == 0 { Ok(()) } else { self.free(address) }
    }

    /// Frees memory, and forgets what was copied to it.
    pub(crate) fn free(&mut self, address: usize) -> Outcome {
        let bytes = self.memory.free(address)?;
        self.forget(address, bytes);
        Ok(())
    }

    /// Returns the address of a variable on the current device.
    pub(crate) fn symbol(&mut self, symbol: usize) -> Outcome<usize> {
        let device = self.current_device();
        if let Some(&address) = self.symbols.get(&(device, symbol)) {
            return Ok(address);
        }
        let address = self.memory.allocate(device, SYMBOL_BYTES)?;
        self.symbols.insert((device, symbol), address);
        Ok(address)
    }

    /// Launches a kernel on a stream.
    pub(crate) fn launch(&mut self, kernel: usize, stream: usize) -> Outcome {
        self.begin_kernel(kernel);
        self.work.submit(stream)
    }

    /// Notes a kernel that is launched: the size that an earlier one found is no result of it.
    pub(crate) fn begin_kernel(&mut self, kernel: usize) {
        let name = self.kernels.name(kernel);
        let (is_maximum, is_second_pass) = (is_integer_maximum(name), is_second_pass(name));
        let value = self.settings.assumptions.maximum;
        let thread = self.thread();
        thread.last_kernel = kernel;
        if is_maximum {
            thread.size_result = Some(SizeResult { value, guess: Some(Guess::Maximum) });
        } else if !is_second_pass {
            thread.size_result = None;
        }
    }

    /// Counts the distinct values among elements as the host computed, or assumes their number.
    pub(crate) fn count_distinct(&mut self, elements: u64) {
        let assumed = self.settings.assumptions.distinct_values.min(elements);
        let thread = self.thread();
        thread.size_result = Some(match thread.known_size {
            Some(value) => SizeResult { value, guess: None },
            None => SizeResult { value: assumed, guess: Some(Guess::Distinct) },
        });
    }

    /// Counts the true elements of a mask: as the host computed, in what was copied there, or by the assumed
    /// fraction. What is all zero can be a buffer that was cleared before a kernel wrote it.
    pub(crate) fn count_mask(&mut self, address: usize, elements: u64, is_bytes: bool) {
        let bytes = usize::try_from(elements).ok().filter(|_| is_bytes);
        let known = bytes.and_then(|bytes| self.contents.read_copied(address, bytes));
        let counted: Option<u64> = known.map(|mask| mask.iter().map(|&byte| u64::from(byte != 0)).sum());
        let assumed = self.settings.assumptions.true_elements.of(elements);
        let thread = self.thread();
        thread.size_result = Some(match thread.known_size.or(counted.filter(|&count| count > 0)) {
            Some(value) => SizeResult { value, guess: None },
            None => SizeResult { value: assumed, guess: Some(Guess::Mask) },
        });
    }

    /// Forgets what was copied to memory that is freed.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        self.contents.forget(address, bytes);
    }
}
