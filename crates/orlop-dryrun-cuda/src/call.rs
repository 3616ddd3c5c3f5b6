//! The way into every call: the lock around the machine, the last error of the thread, panics.

use crate::caller;
use crate::code::{Failure, Outcome};
use crate::fork;
use crate::machine::Machine;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
    static DEVICE: Cell<usize> = const { Cell::new(0) };
}

/// Locks the machine. The loader's lock may be held, as by a library that registers its kernels: what takes
/// the loader's lock, which `dlsym` and thread variables with a destructor do, stays outside.
pub(crate) fn lock() -> MutexGuard<'static, Option<Machine>> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body of a call on the machine. A panic is an unknown error: none reaches C.
pub(crate) fn enter<T>(body: impl FnOnce(&mut Machine) -> Outcome<T>) -> Outcome<T> {
    if fork::initialize() { enter_uninitialized(body) } else { Err(Failure::NOT_INITIALIZED) }
}

/// Runs the body of a call that does not initialize CUDA: a forked process can make it.
pub(crate) fn enter_uninitialized<T>(body: impl FnOnce(&mut Machine) -> Outcome<T>) -> Outcome<T> {
    fork::watch();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut machine = lock();
        body(machine.get_or_insert_with(Machine::from_environment))
    }));
    caller::attribute();
    result.unwrap_or(Err(Failure::UNKNOWN))
}

/// Runs the body of a call of the runtime, and keeps its failure as the last error of the thread.
pub(crate) fn runtime(body: impl FnOnce(&mut Machine) -> Outcome) -> i32 {
    remembered(enter(body))
}

/// Returns the code of an outcome, and keeps a failure as the last error of the thread.
pub(crate) fn remembered(outcome: Outcome) -> i32 {
    let code = status(outcome);
    if code != 0 {
        LAST_ERROR.set(code);
    }
    code
}

pub(crate) fn status(outcome: Outcome) -> i32 {
    outcome.map_or_else(|failure| failure.0, |()| 0)
}

/// Returns the last error of the thread.
pub(crate) fn last_error() -> i32 {
    LAST_ERROR.get()
}

/// Returns the last error of the thread and forgets it.
pub(crate) fn take_last_error() -> i32 {
    LAST_ERROR.take()
}

/// Returns the current device of the thread.
pub(crate) fn device() -> usize {
    DEVICE.get()
}

pub(crate) fn set_device(device: usize) {
    DEVICE.set(device);
}

/// Defines exported calls of the runtime: `fn name(arguments) |machine| body`.
macro_rules! runtime_calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$machine:ident| $body:block)*) => {$(
        #[allow(non_snake_case)] // The names are CUDA's.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> i32 {
            $crate::call::runtime(
                |$machine: &mut $crate::machine::Machine| -> $crate::code::Outcome { $body },
            )
        }
    )*};
}
pub(crate) use runtime_calls;

/// Defines exported calls of the other libraries, whose failures no thread remembers. With another way in
/// than [`enter`]: `in way; fn ...`.
macro_rules! library_calls {
    ($(fn $($rest:tt)*)?) => { $crate::call::library_calls! { in enter; $(fn $($rest)*)? } };
    (
        in $way:ident;
        $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$machine:ident| $body:block)*
    ) => {$(
        #[allow(non_snake_case)] // The names are CUDA's.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> i32 {
            $crate::call::status($crate::call::$way(
                |$machine: &mut $crate::machine::Machine| -> $crate::code::Outcome { $body },
            ))
        }
    )*};
}
pub(crate) use library_calls;
