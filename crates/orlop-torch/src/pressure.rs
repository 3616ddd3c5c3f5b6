//! The last step before an out-of-memory error: a callback of the program, which may free blocks.
//!
//! It runs with no lock of the library held, at most once for a request, and not for requests that it makes.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Is given a device and the bytes of a request, and returns 0 if it freed nothing. It does not unwind.
pub type TorchPressureCallback = extern "C" fn(device: c_int, bytes: u64) -> c_int;

static CALLBACK: Mutex<Option<TorchPressureCallback>> = Mutex::new(None);

thread_local! {
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Sets the callback of the process, or removes it (null). It stays callable until it was replaced and all
/// requests that may have begun to call it returned.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_set_pressure_callback(callback: Option<TorchPressureCallback>) {
    *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = callback;
}

/// Calls the callback. Returns `true` if it says that it freed something.
pub(crate) fn relieve(device: c_int, bytes: usize) -> bool {
    let callback = *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(callback) = callback else { return false };
    if IS_RUNNING.replace(true) {
        return false;
    }
    let has_freed = callback(device, bytes as u64) != 0;
    IS_RUNNING.set(false);
    has_freed
}
