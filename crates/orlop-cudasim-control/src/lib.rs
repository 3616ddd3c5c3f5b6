//! A safe handle on the simulated CUDA driver, for tests: see the README, which follows.
//!
#![doc = include_str!("../README.md")]

mod built;
mod config;
mod driver;
mod error;
mod kernel;
mod library;
#[cfg(target_os = "linux")]
mod loader;
#[cfg(not(target_os = "linux"))]
#[path = "no_loader.rs"]
mod loader;
mod report;

pub use config::{DriverOptions, SimulationConfig};
pub use driver::{ExclusiveDriver, SimulatedDriver};
pub use error::{Error, Result};
pub use kernel::{KernelAccess, KernelCall, KernelMemory, KernelRun, SimulatedKernel};
pub use report::{DriverCounts, LiveAllocation, LiveKind, RaceAccess, RaceReport};
