//! Tests of the public API.
#![cfg(not(loom))]

mod backings;
mod bounds;
mod callbacks;
mod device_ops;
mod growth;
mod handles;
mod pools;
mod regressions;
mod sizes;
mod upstream_arena;
mod wrappers;
