//! Tests of the public API.
#![cfg(not(loom))]

mod accounts;
mod author_locks;
mod context;
mod defaults;
mod device_memory;
mod device_times;
mod environment;
mod hints;
mod holders;
mod ladder;
mod logging;
mod logs;
mod model_updates;
mod observer_ends;
mod observer_locks;
mod observers;
mod pinning;
mod profile;
mod programs;
mod reentry;
mod refusals;
mod registry;
mod retries;
mod visitors;
