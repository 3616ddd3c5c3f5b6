//! The crate through its public API.
#![cfg(not(loom))]

mod access;
mod create;
mod device;
mod diagnose;
mod display;
#[cfg(feature = "dlpack")]
mod dlpack;
mod lazy;
#[cfg(feature = "ndarray")]
mod ndarray;
mod ops;
#[cfg(feature = "safetensors")]
mod safetensors;
mod storage;
mod torch;
mod workspace;
