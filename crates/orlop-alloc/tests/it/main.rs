//! The public API, from outside.
#![cfg(not(loom))]

mod bounds;
mod callbacks;
mod environment;
mod regressions;
