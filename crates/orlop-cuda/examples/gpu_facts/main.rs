//! Checks on the first CUDA device what only hardware can show: memory and events of two processes, pages for
//! other hardware, times of streams, and what the driver does where its documentation promises nothing.
//!
//! ```text
//! cargo build --release -p orlop-cuda --example gpu_facts
//! ```
//!
//! Like `gpu`, the program has everything in it; it starts itself again as the other process. `--simulated`
//! runs it on the simulated driver, so that the answers of both drivers can be compared; times mean nothing
//! there, and sizes are small; with `ORLOP_CUDASIM_LENIENT=1` it does what real drivers are thought to do.
//! Names of sections run only those. A section that fails prints its error, and the next one runs.

mod behaviours;
#[path = "../gpu_costs/calls.rs"]
mod calls;
mod child;
mod clock;
#[cfg(target_os = "linux")]
mod process_pages;
mod processes;
mod rdma;
#[path = "../gpu_costs/sections.rs"]
mod sections;

pub(crate) use self::sections::{head, row, run_sections};
use orlop_alloc::Block;
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_core::{Device, StreamId};
use orlop_cuda::{CudaDevice, CudaOps};
use orlop_cudasim_control::{SimulatedDriver, SimulationConfig};
use std::error::Error;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::time::Instant;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Section = sections::Section<Facts>;

const SECTIONS: &[(&str, Section)] = &[
    ("processes", processes::processes),
    #[cfg(target_os = "linux")]
    ("process-pages", process_pages::process_pages),
    ("rdma", rdma::rdma),
    ("clock", clock::clock),
    ("behaviours", behaviours::behaviours),
];

/// A device, and whether it is simulated.
pub(crate) struct Facts {
    pub(crate) device: CudaDevice,
    pub(crate) is_simulated: bool,
}

impl Facts {
    fn open(is_simulated: bool) -> Result<Self> {
        load(is_simulated)?;
        Ok(Self { device: CudaDevice::new(0)?, is_simulated })
    }

    /// Returns the smaller number on the simulated driver.
    pub(crate) fn or_simulated<T>(&self, real: T, simulated: T) -> T {
        if self.is_simulated { simulated } else { real }
    }

    /// Fills a block on a stream, and does not wait.
    pub(crate) fn fill_on(&self, stream: StreamId, block: &Block, byte: u8) -> Result<()> {
        let ops = CudaOps::new(&self.device);
        // SAFETY: the block has these bytes, and is kept by the caller until the stream was waited for.
        Ok(unsafe { ops.fill(block.device_ptr(), &[byte], block.len(), stream) }?)
    }

    /// Reads a block on a stream, waits, and returns the number of bytes that are another one.
    pub(crate) fn wrong_bytes_on(&self, stream: StreamId, block: &Block, byte: u8) -> Result<usize> {
        let (ops, mut bytes) = (CudaOps::new(&self.device), vec![0_u8; block.len()]);
        let to = DevicePtr::new(NonNull::from(bytes.as_mut_slice()).cast(), Device::CPU);
        // SAFETY: both have these bytes, and are kept until the stream was waited for.
        let copied = unsafe { ops.copy(to, block.device_ptr(), block.len(), stream) };
        ops.synchronize(stream)?;
        copied?;
        Ok(bytes.iter().filter(|found| **found != byte).count())
    }
}

/// Loads the simulated driver, if that is wanted, before anything loads the real one.
fn load(is_simulated: bool) -> Result<()> {
    if is_simulated {
        // The default of the configuration, not of the driver: it depends on `ORLOP_CUDASIM_LENIENT`.
        SimulatedDriver::load()?.reset(&SimulationConfig::new())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let is_simulated = arguments.contains(&"--simulated");
    if let Some(outcome) = child::run(&arguments, is_simulated) {
        return match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("the other process: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let names: Vec<_> = arguments.into_iter().filter(|argument| !argument.starts_with("--")).collect();
    match run(is_simulated, &names) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skipped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the sections with these names, or all, and returns the number of those that failed.
pub(crate) fn run(is_simulated: bool, names: &[&str]) -> Result<usize> {
    let facts = Facts::open(is_simulated)?;
    println!("CUDA {}, {}", facts.device.driver().version(), facts.device.memory()?);
    Ok(run_sections(SECTIONS, names, &facts))
}

/// Runs `work` once, and returns its milliseconds with its outcome.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let outcome = work();
    (start.elapsed().as_secs_f64() * 1e3, outcome)
}
