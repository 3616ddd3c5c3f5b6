//! The way into every call: the lock, counters, injected faults, virtual time, checks of context and capture.

use crate::codes::{CUresult, Failure, Outcome};
use crate::guard::DriverGuard;
use crate::state::host_thread::is_in_callback;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Runs the body of the call `name`.
pub(crate) fn enter(
    name: &'static str,
    kind: CallKind,
    body: impl FnOnce(&mut DriverGuard) -> Outcome,
) -> CUresult {
    // A host function must not call the driver; the real one may hang.
    if is_in_callback() {
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
                |$driver: &mut $crate::guard::DriverGuard| -> $crate::codes::Outcome { $body },
            )
        }
    )*};
}
pub(crate) use calls;
