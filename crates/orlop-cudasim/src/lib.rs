//! A simulated CUDA driver: see the README, which follows.
//!
#![doc = include_str!("../README.md")]

#[cfg(target_os = "linux")]
mod abi;
#[cfg(target_os = "linux")]
mod call;
#[cfg(target_os = "linux")]
mod capture;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod codes;
#[cfg(target_os = "linux")]
mod context;
pub mod control;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod driver_memory;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod exports;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod graphs;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod modules;
#[cfg(target_os = "linux")]
mod pools;
#[cfg(target_os = "linux")]
mod ptx;
#[cfg(target_os = "linux")]
mod races;
#[cfg(target_os = "linux")]
mod random;
#[cfg(target_os = "linux")]
mod streams;
#[cfg(target_os = "linux")]
mod vmm;
#[cfg(target_os = "linux")]
mod work;
