//! Every interleaving of the protocol types, with two slots and at most three threads.
//!
//! Run by `cargo xtask loom`; `cargo xtask loom --mutate` weakens each named ordering in turn and expects a
//! test here to fail. Each test lists the orderings that it covers.
#![cfg(loom)]

mod arenas;
mod caching;
mod handles;
mod regions;
mod shared;
mod streams;
