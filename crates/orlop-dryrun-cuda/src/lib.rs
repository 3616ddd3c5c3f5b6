//! CUDA's libraries without a GPU: see the README, which follows.
//!
#![doc = include_str!("../README.md")]
//! # Code map
//!
//! From the outside in; each module uses those below it.
//!
//! | module | what it holds |
//! |---|---|
//! | `exports/` | the functions of CUDA, by library and group |
//! | `cudnn/` | cuDNN's descriptors and workspaces |
//! | `solver`, `transforms` | workspaces of cuSOLVER and cuFFT |
//! | `call`, `fork`, `abi` | the way into every call; forked processes; pointers of callers |
//! | `caller` | the lines of the program at which values were decided by noise |
//! | `machine` | everything that the libraries know |
//! | `state/` | the parts of that: addresses, memory, contents, streams, kernels, counters |
//! | `code` | result codes |
#![cfg_attr(not(test), deny(clippy::expect_used))]

#[cfg(target_os = "linux")]
mod abi;
#[cfg(target_os = "linux")]
mod call;
#[cfg(target_os = "linux")]
mod caller;
#[cfg(target_os = "linux")]
mod code;
#[cfg(target_os = "linux")]
mod cudnn;
#[cfg(target_os = "linux")]
mod exports;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod solver;
#[cfg(target_os = "linux")]
mod state;
#[cfg(target_os = "linux")]
mod transforms;
