//! The public API, from outside.
#![cfg(not(loom))]

mod backings;
mod bounds;
mod callbacks;
mod child;
mod defaults;
mod environment;
mod handles;
mod logs;
mod pinning;
mod pools;
mod private_pools;
mod regressions;
mod retries;
mod sizes;
mod visitors;
