//! [`StdFunction`]: a function object that PyTorch passes, as libstdc++ lays it out.

use std::ffi::{c_int, c_void};

/// A `std::function<bool(cudaStream_t)>` of libstdc++.
#[repr(C)]
#[derive(Debug)]
pub struct StdFunction {
    functor: [usize; 2],
    manager: Option<unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool>,
    invoker: Option<unsafe extern "C-unwind" fn(*const [usize; 2], *const *mut c_void) -> bool>,
}

const CLONE: c_int = 2;
const DESTROY: c_int = 3;

impl StdFunction {
    /// Creates an empty function.
    #[must_use]
    pub fn empty() -> Self {
        Self { functor: [0; 2], manager: None, invoker: None }
    }

    /// Returns a copy.
    ///
    /// # Safety
    ///
    /// It is a function of libstdc++, of this signature.
    pub(crate) unsafe fn copy(&self) -> Self {
        let mut copy = Self::empty();
        if let Some(manager) = self.manager {
            // SAFETY: the manager of a function copies it into memory for one.
            unsafe { manager(&raw mut copy.functor, &raw const self.functor, CLONE) };
            (copy.manager, copy.invoker) = (self.manager, self.invoker);
        }
        copy
    }

    /// Calls the function. An exception of it passes through. An empty function returns `true`.
    pub(crate) fn call(&self, stream: *mut c_void) -> bool {
        let Some(invoker) = self.invoker else { return true };
        // SAFETY: copies are functions of libstdc++ (the obligation of `copy`), which take arguments by
        // reference.
        unsafe { invoker(&raw const self.functor, &raw const stream) }
    }
}

/// Only copies are dropped: what PyTorch passes is behind a pointer.
impl Drop for StdFunction {
    fn drop(&mut self) {
        if let Some(manager) = self.manager {
            // SAFETY: the copy is destroyed once, by the manager that made it.
            unsafe { manager(&raw mut self.functor, &raw const self.functor, DESTROY) };
        }
    }
}

// SAFETY: PyTorch calls the function from all threads that allocate.
unsafe impl Send for StdFunction {}
