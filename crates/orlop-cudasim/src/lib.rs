//! A simulated CUDA driver: see the README, which follows.
//!
#![doc = include_str!("../README.md")]
//! # Code map
//!
//! From the outside in; each module uses those below it.
//!
//! | module | what it holds |
//! |---|---|
//! | `exports/` | the driver's functions and those of tests, by group |
//! | `call`, `abi` | the way into every call; the types of its arguments |
//! | `operations/` | what calls do to the whole driver |
//! | `guard`, `driver` | the lock around the driver; everything that the driver knows |
//! | `state/` | the parts of that: streams, events, graphs, … |
//! | `ptx/` | the code of kernels |
//! | `memory/` | host memory behind device addresses |
//! | `codes`, [`control`] | result codes; the interface of tests |

#[cfg(target_os = "linux")]
mod abi;
#[cfg(target_os = "linux")]
mod call;
#[cfg(target_os = "linux")]
mod codes;
pub mod control;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod exports;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod operations;
#[cfg(target_os = "linux")]
mod ptx;
#[cfg(target_os = "linux")]
mod state;
