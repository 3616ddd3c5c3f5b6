//! Which context and which stream a thread uses.

use super::Context;
use orlop_core::{Device, StreamId};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

static PROCESS: OnceLock<Context> = OnceLock::new();

thread_local! {
    /// How many contexts this thread is inside of. Apart from them, because what has nothing to drop is looked at in one
    /// load, and mostly that is all: it is zero.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The contexts this thread is inside of, innermost last.
    static CONTEXTS: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    /// The streams it has chosen, innermost last.
    static STREAMS: RefCell<Vec<(usize, Device, StreamId)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn set_process_default(context: Context) -> Result<(), Context> {
    PROCESS.set(context)
}

#[inline]
pub(super) fn process_default() -> &'static Context {
    PROCESS.get_or_init(Context::new)
}

/// The process's default, if the thread is inside of no other.
#[inline]
pub(super) fn current_if_default() -> Option<&'static Context> {
    (DEPTH.get() == 0).then(process_default)
}

/// Runs `f` on the thread's current context.
pub(super) fn with_current<R>(f: impl FnOnce(&Context) -> R) -> R {
    // During thread exit the list may be gone: the process default serves.
    let innermost = || CONTEXTS.try_with(|contexts| contexts.borrow().last().cloned()).ok().flatten();
    match if DEPTH.get() == 0 { None } else { innermost() } {
        Some(context) => f(&context),
        None => f(process_default()),
    }
}

/// Pops on drop, so that a panic inside leaves the thread as it was.
struct Pop<T: 'static>(&'static std::thread::LocalKey<RefCell<Vec<T>>>);

impl<T: 'static> Drop for Pop<T> {
    fn drop(&mut self) {
        let popped = self.0.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
        // Dropped outside the borrow: a context's last handle may run anything.
        drop(popped);
    }
}

pub(super) fn inside<R>(context: Context, f: impl FnOnce() -> R) -> R {
    CONTEXTS.with(|contexts| contexts.borrow_mut().push(context));
    let _pop = Pop(&CONTEXTS);
    let _leave = Enter::new();
    f()
}

/// Counts a context that the thread is inside of, until dropped.
struct Enter;

impl Enter {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

pub(super) fn on_stream<R>(context: usize, device: Device, stream: StreamId, f: impl FnOnce() -> R) -> R {
    STREAMS.with(|streams| streams.borrow_mut().push((context, device, stream)));
    let _pop = Pop(&STREAMS);
    f()
}

/// The stream this thread has chosen for a device of a context.
pub(super) fn stream(context: usize, device: Device) -> Option<StreamId> {
    STREAMS
        .try_with(|streams| {
            let streams = streams.borrow();
            let chosen = streams.iter().rev().find(|&&(c, d, _)| c == context && d == device);
            chosen.map(|&(_, _, stream)| stream)
        })
        .ok()
        .flatten()
}
