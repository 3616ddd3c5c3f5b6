//! Which context and which stream a thread uses.

use super::{Context, CpuConfig};
use orlop_core::{Device, StreamId};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::OnceLock;

static PROCESS: OnceLock<Context> = OnceLock::new();

thread_local! {
    /// The innermost context that this thread is inside of. It is in the frame of `inside`, so that looking takes one load
    /// and no count.
    ///
    /// Invariant: it lives until `inside` puts the one before in its place.
    static CURRENT: Cell<Option<NonNull<Context>>> = const { Cell::new(None) };
    /// The streams it has chosen, innermost last.
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
        // SAFETY: it lives until its `inside` returns (the invariant). That one was called before this, on this thread, and
        // so returns after `f` does.
        Some(context) => unsafe { context.as_ref() },
        None => process_default(),
    })
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
    // Dropped in the end, when the one before is back: a context's last handle may run anything.
    let context = &context;
    let _leave = Leave(CURRENT.replace(Some(NonNull::from(context))));
    f()
}

/// Puts the context from before in its place on drop, so that a panic inside leaves the thread as it was.
struct Leave(Option<NonNull<Context>>);

impl Drop for Leave {
    fn drop(&mut self) {
        CURRENT.set(self.0);
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
