//! The current context and stream of a thread.

use super::{Context, ContextId};
use crate::registry::AllocatorConfig;
use orlop_core::{Device, StreamId};
use orlop_sync::ScopedRef;
use std::cell::RefCell;
use std::sync::OnceLock;

static PROCESS: OnceLock<Context> = OnceLock::new();

thread_local! {
    /// The innermost context that this thread has entered.
    static CURRENT: ScopedRef<Context> = const { ScopedRef::new() };
    /// The streams that the thread has chosen, innermost last.
    static STREAMS: RefCell<Vec<(ContextId, Device, StreamId)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn set_process_default(context: Context) -> Result<(), Context> {
    PROCESS.set(context)
}

#[inline]
pub(super) fn process_default() -> &'static Context {
    PROCESS.get_or_init(|| Context::with(Device::CPU, AllocatorConfig::from_env().shared()))
}

/// Runs `f` on the chosen context, or on the thread's current one.
#[inline(always)]
pub(super) fn with_current_or<R>(chosen: Option<&Context>, f: impl FnOnce(&Context) -> R) -> R {
    // `f` is called in one place, so it is inlined there.
    ScopedRef::with(&CURRENT, |current| f(chosen.or(current).unwrap_or_else(|| process_default())))
}

/// Returns `true` if this context is the thread's current one. Creates no default context.
pub(super) fn is_current(id: ContextId) -> bool {
    ScopedRef::with(&CURRENT, |current| {
        current.or_else(|| PROCESS.get()).is_some_and(|context| context.id() == id)
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

pub(super) fn enter<R>(context: &Context, f: impl FnOnce() -> R) -> R {
    ScopedRef::lend(&CURRENT, context, f)
}

pub(super) fn on_stream<R>(context: ContextId, device: Device, stream: StreamId, f: impl FnOnce() -> R) -> R {
    // In a destructor at the end of a thread the list may be gone: no stream is chosen then.
    let pushed = STREAMS.try_with(|streams| streams.borrow_mut().push((context, device, stream)));
    let _pop = pushed.is_ok().then(|| PopGuard(&STREAMS));
    f()
}

/// Returns the stream that this thread has chosen for a device of a context.
pub(super) fn stream(context: ContextId, device: Device) -> Option<StreamId> {
    STREAMS
        .try_with(|streams| {
            let streams = streams.borrow();
            let chosen = streams.iter().rev().find(|&&(c, d, _)| c == context && d == device);
            chosen.map(|&(_, _, stream)| stream)
        })
        .ok()
        .flatten()
}
