//! What PyTorch, Triton and orlop's own allocator use of the driver, by group.

mod context;
mod locate;
mod memory;
mod modules;
mod refused;
mod streams;
mod virtual_memory;

use context::context_of;
pub(super) use locate::{Located, locate};

/// The version that runtime and driver report: CUDA 13.0.
pub(super) const DRIVER_VERSION: i32 = 13_000;
