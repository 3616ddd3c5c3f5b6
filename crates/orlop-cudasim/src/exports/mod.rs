//! The exported functions, by group. Each is the driver's of the same name; its documentation is NVIDIA's.

mod async_memory;
mod capture;
mod context;
mod control;
mod copy;
mod device;
mod errors;
mod event;
mod fill;
mod graph;
mod host_memory;
mod init;
mod ipc;
mod limits;
mod memory;
mod module;
mod peer;
mod pointer;
mod stream;
mod unsupported;
mod virtual_memory;
