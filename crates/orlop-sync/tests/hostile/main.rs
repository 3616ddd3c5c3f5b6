//! The author of an engine who means harm: nothing that safe code does with what this crate hands it breaks
//! memory, or what the types promise to others. Miri runs all of it.
#![forbid(unsafe_code)]
#![cfg(not(loom))]

mod panics;
mod swaps;
mod thread_locals;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns `true` if `act` panics.
fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}
