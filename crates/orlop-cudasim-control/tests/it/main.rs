//! The simulated driver through cudarc's own loading path.

#![cfg(target_os = "linux")]

#[macro_use]
mod support;

mod basics;
mod capture;
mod compiled;
mod devices;
mod faults;
mod graphs;
mod kernels;
mod leniency;
mod missing;
mod pools;
mod races;
mod streams;
mod symbols;
mod threads;
mod virtual_memory;
mod warps;
