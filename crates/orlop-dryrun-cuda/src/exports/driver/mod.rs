//! What PyTorch and Triton use of the driver, by group.

mod context;
mod locate;
mod memory;
mod modules;
mod refused;
mod virtual_memory;

use context::context_of;
pub(super) use locate::{Located, locate};

/// The version that runtime and driver report: CUDA 13.0.
pub(super) const DRIVER_VERSION: i32 = 13_000;
