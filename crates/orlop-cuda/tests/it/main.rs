//! The CUDA backend over the simulated driver.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]

mod devices;
mod machine;
mod operations;
