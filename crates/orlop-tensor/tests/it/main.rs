//! The crate through its public API.
#![cfg(not(loom))]

mod access;
mod accounting;
#[cfg(feature = "archive")]
mod archive;
#[cfg(any(feature = "archive", feature = "npy"))]
mod cases;
mod contexts;
mod create;
mod device;
mod diagnose;
mod display;
#[cfg(feature = "dlpack")]
mod dlpack;
mod foreign;
mod hooks;
mod hostile;
mod lazy;
mod mock_device;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "npy")]
mod npz;
mod ops;
mod origin;
mod out_of_memory;
mod packed;
mod parts;
#[cfg(feature = "safetensors")]
mod safetensors;
mod storage;
mod streams;
mod torch;
mod unreachable;
mod workspace;
mod writers;
