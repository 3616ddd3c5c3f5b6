//! The runtime, by group.

mod capture;
pub(super) mod copy;
mod device;
mod entry_points;
mod errors;
mod host_memory;
mod kernels;
mod memory;
pub(super) mod properties;
mod streams;
