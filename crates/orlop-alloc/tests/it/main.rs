//! The public API, from outside.
#![cfg(not(loom))]

mod accounts;
mod bounds;
mod environment;
mod holders;
mod programs;
mod regressions;
