//! [`EngineScope`]: whether this thread is inside an engine, where it must not wait for another one.
//!
//! Code inside an engine (a backing, a visitor of its memory, an inspection) runs with the engine's locks
//! held, and may allocate from other allocators. If such a request waited for the locks of a third allocator,
//! two threads could wait for each other.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The number of scopes that this thread is in. It has no destructor, so it can be used until the thread
    /// ends.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Marks this thread as inside an engine until it is dropped.
#[derive(Debug)]
pub struct EngineScope {
    /// It is dropped by the thread that created it.
    _thread: PhantomData<*const ()>,
}

impl EngineScope {
    /// Enters an engine.
    #[inline]
    #[must_use]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { _thread: PhantomData }
    }

    /// Returns `true` if this thread is inside an engine.
    #[must_use]
    pub fn is_inside() -> bool {
        DEPTH.get() > 0
    }
}

impl Drop for EngineScope {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
