//! The conformance suite over every allocator of the workspace, and the BFC engine against reference
//! implementations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod adaptors;
mod bfc;
mod broken;
mod device;
mod device_failures;
mod device_programs;
mod device_threads;
mod hooked_device;
mod hostile;
mod matrix;
mod stamps;
mod torch_golden;
