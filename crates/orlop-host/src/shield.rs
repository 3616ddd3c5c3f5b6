//! Calls of user code that contain its panics. They are made where unwinding would lose a block or leave a
//! change half done.
//!
//! The panic hook has already reported the panic; the engine then continues its own work.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// True while this thread is inside Rust's global allocator. It has no destructor, so it can be read
    /// until the thread ends.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside Rust's global allocator until it is dropped: no user code may run there.
///
/// Only [`InsideGuard::enter`] makes one, which is dropped by its own thread: otherwise code that runs inside
/// could end the mark.
///
/// ```compile_fail,E0423
/// drop(orlop_host::shield::InsideGuard);
/// ```
///
/// ```compile_fail,E0277
/// let inside = orlop_host::shield::InsideGuard::enter();
/// std::thread::spawn(move || drop(inside));
/// ```
#[derive(Debug)]
pub struct InsideGuard {
    _thread: PhantomData<*const ()>,
}

impl InsideGuard {
    /// Returns `None` if the thread is inside already.
    #[inline]
    #[must_use]
    pub fn enter() -> Option<Self> {
        if IS_INSIDE.replace(true) { None } else { Some(Self { _thread: PhantomData }) }
    }
}

impl Drop for InsideGuard {
    #[inline]
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Calls user code. Returns `None` if it panicked.
#[inline(always)]
pub fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            drop_payload(payload);
            None
        }
    }
}

/// Drops a panic's payload, which is user code too: its destructor may panic, and so may the payload of that
/// panic.
#[cold]
#[inline(never)]
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// Emits a log event by `trace`. A subscriber is user code: its panic ends the event and nothing else, and
/// inside Rust's global allocator it is not called.
pub fn report(trace: impl FnOnce()) {
    if !IS_INSIDE.get() {
        let _reported = shielded(trace);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::resume_unwind;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            // The payload has no size, so forgetting it leaks nothing.
            resume_unwind(Box::new(()));
        }
    }

    #[test]
    fn panics_and_their_payloads_are_contained() {
        assert_eq!(shielded(|| 1), Some(1));
        assert_eq!(shielded(|| resume_unwind(Box::new("a panic"))), None::<()>);
        assert_eq!(shielded(|| resume_unwind(Box::new(Bomb))), None::<()>);
    }
}
