//! Calls of user code from places that a panic must not pass: with a block in hand, or in the middle of a change.
//!
//! The panic hook has reported the panic by then. What remains is that the engine's own work goes on.

use crate::bare::may_trace;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls user code. `None` if it panicked.
#[inline(always)]
pub fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            end(payload);
            None
        }
    }
}

/// A payload is user code too: its destructor may panic, and so may the payload of that panic.
#[cold]
#[inline(never)]
fn end(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// Traces something. A subscriber is user code: its panic ends the report and nothing else, and inside Rust's global
/// allocator it is not called.
pub fn report(trace: impl FnOnce()) {
    if may_trace() {
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
            // Without a size: this payload is forgotten.
            resume_unwind(Box::new(()));
        }
    }

    #[test]
    fn panics_end_here_with_their_payloads() {
        assert_eq!(shielded(|| 1), Some(1));
        assert_eq!(shielded(|| resume_unwind(Box::new("a panic"))), None::<()>);
        assert_eq!(shielded(|| resume_unwind(Box::new(Bomb))), None::<()>);
    }
}
