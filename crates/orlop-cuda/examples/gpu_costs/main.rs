//! Measures what calls of the driver and the allocators over them cost on the first CUDA device, and prints
//! tables for `docs/gpu-results.md`.
//!
//! ```text
//! cargo build --release -p orlop-cuda --example gpu_costs
//! ```
//!
//! Like `gpu`, the program has everything in it. `--simulated` runs it on the simulated driver, where times
//! mean nothing; `--quick` takes less memory and fewer rounds; names of sections run only those. A section
//! that fails prints its error, and the next one runs.

mod calls;
mod capture;
mod driver_costs;
mod exhaustion;
mod memory;
mod overlap;
mod remap;
mod sections;
mod threads;

pub(crate) use self::sections::{Section, head, row, run_sections};
use orlop_cuda::CudaDevice;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SECTIONS: [(&str, Section<Costs>); 12] = [
    ("context", memory::context),
    ("pages", driver_costs::pages),
    ("remap", remap::remap),
    ("events", driver_costs::events),
    ("two-streams", driver_costs::two_streams),
    ("threads", threads::threads),
    ("capture", capture::capture),
    ("pools", memory::pools),
    ("copies", memory::copies),
    ("overlap", overlap::overlap),
    ("addresses", driver_costs::addresses),
    ("exhaustion", exhaustion::exhaustion),
];

/// A device, and how much of it is used.
pub(crate) struct Costs {
    pub(crate) device: CudaDevice,
    pub(crate) is_quick: bool,
}

impl Costs {
    /// Returns the smaller number in a quick run.
    pub(crate) fn or_quick<T>(&self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (options, names): (Vec<_>, Vec<_>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    match run(options.contains(&"--simulated"), options.contains(&"--quick"), &names) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skipped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the sections with these names, or all, and returns the number of those that failed.
pub(crate) fn run(is_simulated: bool, is_quick: bool, names: &[&str]) -> Result<usize> {
    if is_simulated {
        orlop_cudasim_control::SimulatedDriver::load()?;
    }
    memory::print_use_before_the_context();
    let device = CudaDevice::new(0)?;
    println!("CUDA {}, {}", device.driver().version(), device.memory()?);
    let costs = Costs { device, is_quick };
    Ok(run_sections(&SECTIONS, names, &costs))
}

/// Runs `work` `rounds` times, and returns the nanoseconds of one.
pub(crate) fn ns_each(rounds: u32, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..rounds {
        work()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(rounds))
}

/// Runs `work` once, and returns its milliseconds with its result.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, result))
}
