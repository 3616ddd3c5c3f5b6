//! Tests of the public API.
#![cfg(not(loom))]

mod backings;
mod bounds;
mod callbacks;
mod deleters;
mod device_ops;
mod growth;
mod handles;
mod in_flight;
mod panics;
mod pools;
mod regressions;
mod reports;
mod sizes;
mod upstream_arena;
mod weak_handles;
mod wrappers;
