//! [`Capture`]: a capture of streams in progress, and the driver's numbers for modes and states.

use super::graph::Graph;
use crate::codes::{Failure, Outcome};
use std::cell::Cell;

/// `CUstreamCaptureMode`.
pub(crate) const GLOBAL: i32 = 0;
pub(crate) const RELAXED: i32 = 2;

/// `CUstreamCaptureStatus`.
pub(crate) const STATUS_NONE: i32 = 0;
pub(crate) const STATUS_ACTIVE: i32 = 1;
pub(crate) const STATUS_INVALIDATED: i32 = 2;

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// Returns this thread's mode.
pub(crate) fn thread_mode() -> i32 {
    MODE.get()
}

/// Replaces this thread's mode and returns the one before.
pub(crate) fn exchange_mode(mode: i32) -> Outcome<i32> {
    if (GLOBAL..=RELAXED).contains(&mode) { Ok(MODE.replace(mode)) } else { Err(Failure::INVALID_VALUE) }
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The stream that began it.
    pub(crate) origin: u64,
    pub(crate) mode: i32,
    /// The thread that began it.
    pub(crate) thread: u64,
    pub(crate) is_invalid: bool,
    pub(crate) graph: Graph,
    /// The handle that the graph gets, and those of the origin's dependencies, for `cuStreamGetCaptureInfo`.
    pub(crate) graph_handle: u64,
    pub(crate) dependencies: Box<[u64]>,
}
