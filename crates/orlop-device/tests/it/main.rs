//! The public API, from outside.
#![cfg(not(loom))]

mod device_memory;
mod pressure;
mod private_pools;
mod regions;
#[cfg(target_os = "linux")]
mod registered;
mod summary;
mod visitors;
