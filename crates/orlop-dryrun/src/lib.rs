//! Prepares dry runs of PyTorch programs: see the README, which follows.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]
//! # Code map
//!
//! | module | what it holds |
//! |---|---|
//! | [`gpu`] | the GPUs that can be named, as data |
//! | [`assumptions`] | what is assumed of values that decide sizes |
//! | [`settings`] | what a dry run is told, and how it travels in the environment |
//! | [`elf`] | reads what libraries import and export; writes stand-ins for libraries |
//! | [`injection`] | the folder of stand-ins for one installed PyTorch, and the environment that injects it |

pub mod assumptions;
pub mod elf;
mod error;
pub mod gpu;
pub mod injection;
pub mod settings;

pub use error::{DryRunError, Result};
