//! Contexts: the primary context of each device, and the stack of current contexts of each thread.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of device 0's primary context; the next device's is `STEP` further.
const FIRST: u64 = 0xC0DE_0000_0000;
const STEP: u64 = 0x1000;

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number for this thread that no other thread has.
pub(crate) fn thread() -> u64 {
    if THREAD.get() == 0 {
        // Relaxed: only the uniqueness of the number matters.
        THREAD.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Returns the handle of a device's primary context.
pub(crate) fn primary(device: usize) -> u64 {
    FIRST + STEP * device as u64
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

impl Driver {
    /// Returns the device of a context handle.
    pub(crate) fn device_of_context(&self, context: u64) -> Outcome<usize> {
        let index = context.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(STEP));
        let device = index.and_then(|offset| usize::try_from(offset / STEP).ok());
        device.filter(|&device| device < self.devices.len()).ok_or(Failure::INVALID_CONTEXT)
    }

    /// Returns the device of the current context, which must be retained.
    pub(crate) fn current_device(&self) -> Outcome<usize> {
        let device = self.device_of_context(current())?;
        if self.devices[device].retained == 0 {
            return Err(Failure::CONTEXT_IS_DESTROYED);
        }
        Ok(device)
    }

    /// Returns the index of a `CUdevice`.
    pub(crate) fn device(&self, device: i32) -> Outcome<usize> {
        let index = usize::try_from(device).ok().filter(|&index| index < self.devices.len());
        index.ok_or(Failure::INVALID_DEVICE)
    }
}
