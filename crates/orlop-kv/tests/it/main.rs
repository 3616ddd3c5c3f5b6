//! Paged KV memory under a stamp oracle: every slot knows which tokens, position, group and layer wrote it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod cases;
#[cfg(target_os = "linux")]
mod cuda;
mod device;
mod layers;
mod mirror;
mod oracle;
mod random;
mod rows;
#[cfg(target_os = "linux")]
mod simulated;
mod stamps;
mod suite;
