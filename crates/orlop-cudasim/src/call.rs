//! The way into every call: one lock, counters, injected faults, virtual time, checks of context and capture.

use crate::codes::{CUresult, Failure, Outcome};
use crate::driver::Driver;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);

/// Signalled when a host function ends: a thread may wait for its stream.
static PROGRESS: Condvar = Condvar::new();

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// The locked driver. Host functions run with the lock released.
#[derive(Debug)]
pub(crate) struct DriverGuard(Option<MutexGuard<'static, Driver>>);

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Works before `cuInit`.
    Free,
    /// Needs `cuInit`.
    Init,
    /// Needs a current context without a sticky error.
    Context,
    /// Needs that, and is refused while a capture forbids calls that may wait for a stream.
    Unsafe,
}

impl Deref for DriverGuard {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        // `None` only within `unlocked` and `wait_for_progress`, which hold the unique borrow.
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("the driver is locked"),
        }
    }
}

impl DerefMut for DriverGuard {
    fn deref_mut(&mut self) -> &mut Driver {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("the driver is locked"),
        }
    }
}

impl DriverGuard {
    pub(crate) fn lock() -> Self {
        Self(Some(DRIVER.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Runs a host function without the lock, as the real driver runs it on a thread of its own.
    pub(crate) fn unlocked(&mut self, function: impl FnOnce()) {
        self.0 = None;
        as_callback(function);
        *self = Self::lock();
        PROGRESS.notify_all();
    }

    /// Waits until a host function on another thread has ended.
    pub(crate) fn wait_for_progress(&mut self) {
        self.0 = self.0.take().map(|guard| PROGRESS.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Runs code that must not call the driver.
pub(crate) fn as_callback<R>(function: impl FnOnce() -> R) -> R {
    let before = IN_CALLBACK.replace(true);
    let result = function();
    IN_CALLBACK.set(before);
    result
}

/// Runs the body of the call `name`.
pub(crate) fn enter(
    name: &'static str,
    kind: CallKind,
    body: impl FnOnce(&mut DriverGuard) -> Outcome,
) -> CUresult {
    // A host function must not call the driver; the real one may hang.
    if IN_CALLBACK.get() {
        return Failure::NOT_PERMITTED.0;
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut driver = DriverGuard::lock();
        begin(&mut driver, name, kind)?;
        body(&mut driver)
    }));
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.0,
        Err(_) => Failure::UNKNOWN.0,
    }
}

fn begin(driver: &mut DriverGuard, name: &'static str, kind: CallKind) -> Outcome {
    driver.faults.count(name);
    if let Some(failure) = driver.faults.next(name) {
        if failure.is_sticky()
            && let Ok(device) = driver.current_device()
        {
            driver.devices[device].sticky = Some(failure);
        }
        return Err(failure);
    }
    if kind == CallKind::Free {
        return Ok(());
    }
    if !driver.is_initialized {
        return Err(Failure::NOT_INITIALIZED);
    }
    driver.now += driver.config.call_ns;
    let now = driver.now;
    driver.run_until(now);
    if kind == CallKind::Init {
        return Ok(());
    }
    let device = driver.current_device()?;
    if let Some(failure) = driver.devices[device].sticky {
        return Err(failure);
    }
    if kind == CallKind::Unsafe { driver.refuse_in_capture() } else { Ok(()) }
}

/// Defines exported calls: `fn name(arguments) Kind |driver| body`.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $call:ident |$driver:ident| $body:block)*) => {$(
        #[allow(non_snake_case)] // The names are the driver's.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> $crate::codes::CUresult {
            $crate::call::enter(
                stringify!($name),
                $crate::call::CallKind::$call,
                |$driver: &mut $crate::call::DriverGuard| -> $crate::codes::Outcome { $body },
            )
        }
    )*};
}
pub(crate) use calls;
