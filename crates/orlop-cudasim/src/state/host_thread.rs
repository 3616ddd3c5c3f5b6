//! What the driver knows of each thread of the host: its number, its stack of current contexts, and whether
//! it runs code that must not call the driver.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Returns a number for this thread that no other thread has.
pub(crate) fn thread() -> u64 {
    if THREAD.get() == 0 {
        // Relaxed: only the uniqueness of the number matters.
        THREAD.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Runs a function on this thread's stack of contexts. A thread that is ending has none.
fn stack<R: Default>(function: impl FnOnce(&mut Vec<u64>) -> R) -> R {
    STACK.try_with(|stack| function(&mut stack.borrow_mut())).unwrap_or_default()
}

/// Returns the current context; 0 for none.
pub(crate) fn current() -> u64 {
    stack(|stack| stack.last().copied().unwrap_or(0))
}

/// Replaces the current context; 0 removes it.
pub(crate) fn set_current(context: u64) {
    stack(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
}

pub(crate) fn push(context: u64) {
    stack(|stack| stack.push(context));
}

/// Leaves this thread without a context.
pub(crate) fn clear() {
    stack(Vec::clear);
}

pub(crate) fn pop() -> Option<u64> {
    stack(Vec::pop)
}

/// Runs code that must not call the driver.
pub(crate) fn as_callback<R>(function: impl FnOnce() -> R) -> R {
    let before = IN_CALLBACK.replace(true);
    let result = function();
    IN_CALLBACK.set(before);
    result
}

/// Returns `true` while this thread runs code that must not call the driver.
pub(crate) fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}
