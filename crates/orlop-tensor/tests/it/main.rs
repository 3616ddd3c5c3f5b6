//! The crate through its public API.

mod access;
mod create;
mod device;
mod lazy;
mod ops;
mod storage;
mod torch;
mod workspace;
