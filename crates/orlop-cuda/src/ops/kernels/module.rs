//! [`KernelModule`]: the kernels of a context, loaded at their first use.
//!
//! The driver compiles the module when it is loaded, which takes a tenth of a second if it has not cached the
//! result.

use super::super::OnStream;
use super::text::{CAST_NAME, COPIES, FILLS, text};
use crate::device::DriverScope;
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::engine_support::trace_guarded;
use std::ffi::CStr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The functions of the module. They are handles, which are valid as long as the context.
#[derive(Debug)]
pub(in crate::ops) struct Kernels {
    /// By the power of two of the element's size.
    pub(super) copies: [Function; 5],
    pub(super) fills: [Function; 5],
    pub(super) cast: Function,
}

/// A handle of a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function(pub(super) abi::Handle);

// SAFETY: the driver's functions are called with it from any thread; it is a number to this crate.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The kernels of a context, or the failure to load them.
#[derive(Debug, Default)]
pub(in crate::ops) struct KernelModule {
    loaded: OnceLock<Result<Kernels, CudaError>>,
    loading: Mutex<()>,
}

impl KernelModule {
    /// Returns the kernels for an operation on a stream. `None` if they cannot be loaded, or not now: a
    /// stream that captures is no place to load them.
    pub(in crate::ops) fn kernels(&self, on: &OnStream<'_>) -> Option<&Kernels> {
        if let Some(loaded) = self.loaded.get() {
            return loaded.as_ref().ok();
        }
        if on.scope.is_capturing(on.handle).unwrap_or(true) {
            return None;
        }
        self.load(on.scope).ok()
    }

    /// Loads the kernels, or returns the failure to load them. A failure that says something about the
    /// module is kept; one that passes, such as a lack of memory, is not.
    pub(in crate::ops) fn load(&self, scope: &DriverScope<'_>) -> Result<&Kernels, CudaError> {
        let loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match self.loaded.get() {
            Some(loaded) => loaded,
            None => match load(scope) {
                Err(passing) if !matches!(passing, CudaError::Failed(_)) => return Err(passing),
                loaded => {
                    if let Err(error) = &loaded {
                        trace_guarded(|| tracing::warn!(%error, "there are no kernels on this device"));
                    }
                    self.loaded.get_or_init(|| loaded)
                }
            },
        };
        drop(loading);
        loaded.as_ref().map_err(|error| *error)
    }
}

fn load(scope: &DriverScope<'_>) -> Result<Kernels, CudaError> {
    let (driver, mut text) = (scope.driver(), text());
    text.push('\0');
    let mut loaded = std::ptr::null_mut();
    // SAFETY: it writes one handle; the text ends with a zero byte.
    unsafe { call!(driver, cuModuleLoadData(&raw mut loaded, text.as_ptr().cast())) }?;
    let function = |name: &CStr| -> Result<Function, CudaError> {
        let mut function = std::ptr::null_mut();
        // SAFETY: it writes one handle; the module is loaded, and the name ends with a zero byte.
        unsafe { call!(driver, cuModuleGetFunction(&raw mut function, loaded, name.as_ptr())) }?;
        Ok(Function(function))
    };
    let all = |names: [&CStr; 5]| -> Result<[Function; 5], CudaError> {
        let mut functions = [Function(std::ptr::null_mut()); 5];
        for (found, name) in functions.iter_mut().zip(names) {
            *found = function(name)?;
        }
        Ok(functions)
    };
    let found =
        all(COPIES).and_then(|copies| Ok(Kernels { copies, fills: all(FILLS)?, cast: function(CAST_NAME)? }));
    found.inspect_err(|_| {
        // SAFETY: loaded above, and no function of it is used.
        let unloaded = unsafe { call!(driver, cuModuleUnload(loaded)) };
        if let Err(failure) = unloaded {
            trace_guarded(|| tracing::error!(%failure, "a module leaked"));
        }
    })
}
