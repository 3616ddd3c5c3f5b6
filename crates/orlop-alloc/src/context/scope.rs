//! The current context and stream of a thread.

use super::{Context, CpuConfig};
use orlop_core::{Device, StreamId};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::OnceLock;

static PROCESS: OnceLock<Context> = OnceLock::new();

thread_local! {
    /// The innermost context that this thread has entered. It is in the frame of `enter`, so that reading it
    /// takes one load and no reference count.
    ///
    /// Invariant: it is alive until `enter` restores the previous one.
    static CURRENT: Cell<Option<NonNull<Context>>> = const { Cell::new(None) };
    /// The streams that the thread has chosen, innermost last.
    static STREAMS: RefCell<Vec<(usize, Device, StreamId)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn set_process_default(context: Context) -> Result<(), Context> {
    PROCESS.set(context)
}

#[inline]
pub(super) fn process_default() -> &'static Context {
    PROCESS.get_or_init(|| Context::with(Device::CPU, CpuConfig::from_env().shared()))
}

/// Runs `f` on the thread's current context.
#[inline(always)]
pub(super) fn with_current<R>(f: impl FnOnce(&Context) -> R) -> R {
    f(match &CURRENT.get() {
        // SAFETY: it is alive until its `enter` returns (the invariant). That call is on this thread and
        // began earlier, so it returns after `f` does.
        Some(context) => unsafe { context.as_ref() },
        None => process_default(),
    })
}

/// Pops the stack on drop, so that a panic inside leaves the thread unchanged.
struct PopGuard<T: 'static>(&'static std::thread::LocalKey<RefCell<Vec<T>>>);

impl<T: 'static> Drop for PopGuard<T> {
    fn drop(&mut self) {
        let popped = self.0.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
        // Dropped outside the borrow: a destructor may run arbitrary code.
        drop(popped);
    }
}

pub(super) fn enter<R>(context: Context, f: impl FnOnce() -> R) -> R {
    // Dropped at the end, when the previous context is restored: dropping a context may run arbitrary code.
    let context = &context;
    let _leave = RestoreGuard(CURRENT.replace(Some(NonNull::from(context))));
    f()
}

/// Restores the previous context on drop, so that a panic inside leaves the thread unchanged.
struct RestoreGuard(Option<NonNull<Context>>);

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

pub(super) fn on_stream<R>(context: usize, device: Device, stream: StreamId, f: impl FnOnce() -> R) -> R {
    STREAMS.with(|streams| streams.borrow_mut().push((context, device, stream)));
    let _pop = PopGuard(&STREAMS);
    f()
}

/// Returns the stream that this thread has chosen for a device of a context.
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
