//! The public API, from outside.
#![cfg(not(loom))]

mod bounds;
mod environment;
mod regressions;
