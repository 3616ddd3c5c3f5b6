//! Every interleaving of the protocol types, with two slots and at most three threads.
//!
//! Run by `cargo xtask loom`; `cargo xtask loom --mutate` weakens each named ordering in turn and expects a
//! test here to fail. Each test says which orderings it is there for.
#![cfg(loom)]

mod counters;
mod drop_queue;
mod growable_heap;
mod handles;
mod owner;
mod raw_lock;
mod remote_free_list;
mod slots;
mod swap_cell;
