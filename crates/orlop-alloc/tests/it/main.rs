//! Tests of the public API.
#![cfg(not(loom))]

mod accounts;
mod backings;
mod bounds;
mod callbacks;
mod child;
mod defaults;
mod environment;
mod growth;
mod handles;
mod holders;
mod logs;
mod pinning;
mod pools;
mod programs;
mod regressions;
mod retries;
mod sizes;
mod visitors;
