//! The public API, from outside.
#![cfg(not(loom))]

mod bounds;
mod child;
mod defaults;
mod environment;
mod regressions;
