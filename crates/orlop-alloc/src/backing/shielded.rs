//! The backing as its engine calls it: user code, called in the middle of the engine's work.
//!
//! * A panic ends at the call. A region that panics on its way in is refused; on its way out it counts as given back, and
//!   whether its memory is lost is the backing's affair. So no engine, adaptor or handle is ever unwound half-way.
//! * A call from inside is known. An engine that calls its backing may hold its growth lock, and what it was about to do
//!   is not written down yet: it must not grow again below itself. [`Shielded::is_entered`] says that the calling thread is
//!   inside, and the engine refuses what would need memory with [`Error::Reentrant`].

use super::{Backing, Region, Reservation};
use crate::shield::{report, shielded};
use crate::{Access, Error, Result};
use orlop_core::{Alignment, Device};
use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};

/// A backing behind a shield; see the head of its file.
pub(crate) struct Shielded<B> {
    inner: B,
}

/// A call of a backing that this thread is inside of.
struct Frame {
    /// The address of the [`Shielded`].
    backing: usize,
    /// The call around this one, or null. It is further up the stack.
    outer: *const Frame,
}

thread_local! {
    /// The innermost call, or null.
    ///
    /// Invariant: it and all outer ones are in frames of this thread's stack that have not returned.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Makes the outer call the innermost one again.
struct Leave(*const Frame);

impl Drop for Leave {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

impl<B: Backing> Shielded<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner }
    }

    /// Whether this thread is inside a call of this backing.
    pub(crate) fn is_entered(&self) -> bool {
        let mut frame = INNERMOST.get();
        // SAFETY: null, or in a frame of this thread's stack that has not returned (the invariant).
        while let Some(call) = unsafe { frame.as_ref() } {
            if call.backing == ptr::from_ref(self).addr() {
                return true;
            }
            frame = call.outer;
        }
        false
    }

    /// An error if this thread is inside a call of this backing: the engine must not grow then.
    pub(crate) fn check_not_entered(&self) -> Result<()> {
        if self.is_entered() { Err(self.reentrant()) } else { Ok(()) }
    }

    #[cold]
    fn reentrant(&self) -> Error {
        Error::Reentrant { inside: format!("the backing {}", self.inner.name()).into() }
    }

    /// Calls the backing. `None` if it panicked.
    fn call<R>(&self, what: &'static str, call: impl FnOnce(&B) -> R) -> Option<R> {
        let result = {
            let frame = Frame { backing: ptr::from_ref(self).addr(), outer: INNERMOST.get() };
            // Declared after the frame, so that it goes first.
            let _leave = Leave(INNERMOST.replace(&raw const frame));
            shielded(|| call(&self.inner))
        };
        if result.is_none() {
            self.report(what);
        }
        result
    }

    #[cold]
    fn report(&self, what: &'static str) {
        report(|| tracing::error!(backing = self.inner.name(), what, "the backing panicked"));
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for Shielded<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        if self.is_entered() {
            return None;
        }
        self.call("reserve", |inner| inner.reserve(bytes, align)).flatten()
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: the caller's promise.
        self.call("release", |inner| unsafe { inner.release(region) });
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        if self.is_entered() {
            return None;
        }
        self.call("reserve_addresses", |inner| inner.reserve_addresses(capacity, align)).flatten()
    }

    fn commit_granularity(&self) -> Alignment {
        self.inner.commit_granularity()
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        if self.is_entered() {
            return false;
        }
        // SAFETY: the caller's promise.
        self.call("commit", |inner| unsafe { inner.commit(line, from, to) }).unwrap_or(false)
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        // SAFETY: the caller's promise.
        self.call("decommit", |inner| unsafe { inner.decommit(line, from, to) });
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        // SAFETY: the caller's promise.
        self.call("release_addresses", |inner| unsafe { inner.release_addresses(line, gained) });
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        self.call("discard", |inner| unsafe { inner.discard(ptr, bytes) }).unwrap_or(0)
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise.
        self.call("region_bytes", |inner| unsafe { inner.region_bytes(ptr) }).flatten()
    }

    fn is_pinned(&self) -> bool {
        self.inner.is_pinned()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn node(&self) -> Option<u32> {
        self.inner.node()
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        self.call("zero", |inner| unsafe { inner.zero(ptr, bytes) }).unwrap_or(false)
    }
}

impl<B: fmt::Debug> fmt::Debug for Shielded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
