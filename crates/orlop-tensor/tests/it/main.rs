//! The crate through its public API.
#![cfg(not(loom))]

mod access;
mod accounting;
#[cfg(feature = "archive")]
mod archive;
mod binding;
#[cfg(any(feature = "archive", feature = "npy"))]
mod cases;
mod contexts;
mod create;
mod device;
mod diagnose;
mod display;
#[cfg(feature = "dlpack")]
mod dlpack;
mod elements;
mod foreign;
mod formats;
mod hooks;
mod hostile;
mod lazy;
mod lazy_engines;
mod mock_device;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "npy")]
mod npz;
mod one_path;
mod ops;
mod origin;
mod out_of_memory;
mod packed;
mod parts;
#[cfg(feature = "safetensors")]
mod safetensors;
#[cfg(feature = "rand")]
mod seeds;
mod storage;
mod streams;
mod torch;
mod unreachable;
mod workspace;
mod writers;
