#![doc = include_str!("../README.md")]

mod config;
mod driver;
mod error;
mod kernel;
mod library;
mod report;

pub use config::{DriverOptions, SimulationConfig};
pub use driver::{ExclusiveDriver, SimulatedDriver};
pub use error::{Error, Result};
pub use kernel::{KernelAccess, KernelCall, KernelMemory, KernelRun, SimulatedKernel};
pub use report::{DriverCounts, LiveAllocation, LiveKind, RaceAccess, RaceReport};
