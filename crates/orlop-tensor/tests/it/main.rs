//! The crate through its public API.

mod access;
mod create;
mod device;
#[cfg(feature = "dlpack")]
mod dlpack;
mod lazy;
mod ops;
mod storage;
mod torch;
mod workspace;
