//! Every allocator of the workspace against the suite, and the central engine against its references.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod adaptors;
mod bfc;
mod broken;
mod device;
mod device_programs;
mod matrix;
mod stamps;
mod torch_golden;
