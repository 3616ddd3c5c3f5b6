//! The wrapper through which an engine calls its backing, which is user code that runs in the middle of the
//! engine's work.
//!
//! * **Panics end at the call.** If `reserve` panics, the region is refused. If `release` panics, the region
//!   counts as released, and its memory may leak. Neither the engine nor an adaptor or handle above it is
//!   unwound in the middle of a change.
//! * **Reentrant calls are detected.** An engine that calls its backing may hold its growth lock and may not
//!   have recorded the change yet, so it must not grow again from within. [`Shielded::is_entered`] returns
//!   `true` on a thread that is inside a call; the engine then refuses everything that needs memory with
//!   [`Error::Reentrant`].

use super::{Backing, Region, Reservation};
use crate::{Error, Result, forward_backing};
use orlop_core::Alignment;
use orlop_host::shield::{report, shielded};
use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};

/// A backing whose panics and reentrant calls are contained; see the module documentation.
pub(crate) struct Shielded<B> {
    inner: B,
}

/// A backing call that is in progress on this thread.
struct Frame {
    /// The address of the [`Shielded`].
    backing: usize,
    /// The enclosing call, or null. Its frame is further up the stack.
    outer: *const Frame,
}

thread_local! {
    /// The innermost call in progress, or null.
    ///
    /// Invariant: this frame and all its outer frames are on this thread's stack, in functions that have not
    /// returned.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Returns `true` if this thread is inside a call of any engine's backing: it may hold a growth lock.
#[cfg(all(unix, not(loom)))]
pub(crate) fn is_inside_backing() -> bool {
    !INNERMOST.get().is_null()
}

/// Restores the enclosing call as the innermost one when it is dropped.
struct RestoreOuter(*const Frame);

impl Drop for RestoreOuter {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

impl<B: Backing> Shielded<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner }
    }

    /// Returns `true` if this thread is inside a call of this backing.
    pub(crate) fn is_entered(&self) -> bool {
        let mut frame = INNERMOST.get();
        // SAFETY: null, or a frame on this thread's stack in a function that has not returned (the invariant
        // of `INNERMOST`).
        while let Some(call) = unsafe { frame.as_ref() } {
            if call.backing == ptr::from_ref(self).addr() {
                return true;
            }
            frame = call.outer;
        }
        false
    }

    /// Checks that the engine may grow.
    ///
    /// # Errors
    ///
    /// [`Error::Reentrant`] if this thread is inside a call of this backing.
    pub(crate) fn check_not_entered(&self) -> Result<()> {
        if self.is_entered() { Err(self.reentrant()) } else { Ok(()) }
    }

    /// Returns a clone of the backing, or `None` if that panicked.
    ///
    /// # Errors
    ///
    /// [`Error::Reentrant`] if this thread is inside a call of this backing.
    pub(crate) fn cloned(&self) -> Result<Option<B>>
    where
        B: Clone,
    {
        self.check_not_entered()?;
        Ok(self.call("clone", B::clone))
    }

    #[cold]
    fn reentrant(&self) -> Error {
        Error::Reentrant { inside: format!("the backing {}", self.inner.name()).into() }
    }

    /// Calls the backing. Returns `None` if it panicked.
    fn call<R>(&self, what: &'static str, call: impl FnOnce(&B) -> R) -> Option<R> {
        let result = {
            let frame = Frame { backing: ptr::from_ref(self).addr(), outer: INNERMOST.get() };
            // Declared after the frame, so that it is dropped first.
            let _restore = RestoreOuter(INNERMOST.replace(&raw const frame));
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

// SAFETY: regions come from the inner backing unchanged.
unsafe impl<B: Backing> Backing for Shielded<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        if self.is_entered() {
            return None;
        }
        self.call("reserve", |inner| inner.reserve(bytes, align)).flatten()
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        self.call("release", |inner| unsafe { inner.release(region) });
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        if self.is_entered() {
            return None;
        }
        self.call("reserve_addresses", |inner| inner.reserve_addresses(capacity, align)).flatten()
    }

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        if self.is_entered() {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        self.call("commit", |inner| unsafe { inner.commit(reservation, from, to) }).unwrap_or(false)
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        // SAFETY: guaranteed by the caller.
        self.call("decommit", |inner| unsafe { inner.decommit(reservation, from, to) });
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        // SAFETY: guaranteed by the caller.
        self.call("release_addresses", |inner| unsafe { inner.release_addresses(reservation, committed) });
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: guaranteed by the caller.
        self.call("discard", |inner| unsafe { inner.discard(ptr, bytes) }).unwrap_or(0)
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        self.call("region_bytes", |inner| unsafe { inner.region_bytes(ptr) }).flatten()
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        self.call("zero", |inner| unsafe { inner.zero(ptr, bytes) }).unwrap_or(false)
    }

    forward_backing!(
        inner; except reserve, release, reserve_addresses, commit, decommit, release_addresses, discard,
        region_bytes, zero,
    );
}

impl<B: fmt::Debug> fmt::Debug for Shielded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
