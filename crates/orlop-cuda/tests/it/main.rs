//! The CUDA backend over the simulated driver.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]

mod devices;
mod failures;
mod machine;
mod operations;
mod programs;
mod steady;
