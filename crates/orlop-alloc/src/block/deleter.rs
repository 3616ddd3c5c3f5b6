//! Deleters: functions that free foreign memory when its block is dropped.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// A function and a context, called once with the data pointer.
///
/// A plain function needs no allocation. A closure is boxed once, and its box is the context.
pub struct Deleter {
    call: unsafe fn(context: *mut c_void, data: *mut u8),
    context: *mut c_void,
}

impl Deleter {
    /// Creates a deleter that calls `function(context, data)`. `data` is null if the deleter is dropped
    /// without having been attached to a block.
    ///
    /// # Safety
    ///
    /// It is sound to call `function` once, from any thread, with this context and the block's data pointer
    /// (or null).
    #[must_use]
    pub const unsafe fn from_fn(
        function: unsafe fn(context: *mut c_void, data: *mut u8),
        context: *mut c_void,
    ) -> Self {
        Self { call: function, context }
    }

    /// Creates a deleter that calls a closure with the data pointer, which may be null as for
    /// [`Deleter::from_fn`].
    pub fn from_closure<F: FnOnce(*mut u8) + Send + 'static>(closure: F) -> Self {
        unsafe fn call<F: FnOnce(*mut u8)>(context: *mut c_void, data: *mut u8) {
            // SAFETY: `context` is the box made below. It is passed to this function once: `run` consumes the
            // deleter, and `drop` runs once.
            let closure = unsafe { Box::from_raw(context.cast::<F>()) };
            closure(data);
        }
        Self { call: call::<F>, context: Box::into_raw(Box::new(closure)).cast() }
    }

    /// Creates a deleter that keeps `owner` alive until the block is dropped, then drops it.
    pub fn from_owner<T: Send + 'static>(owner: T) -> Self {
        Self::from_closure(move |_| drop(owner))
    }

    /// Returns the deleter's context: the one given, or the closure's box.
    #[must_use]
    pub fn context(&self) -> *mut c_void {
        self.context
    }

    pub(crate) fn run(self, data: NonNull<u8>) {
        let deleter = ManuallyDrop::new(self);
        // SAFETY: guaranteed by the constructors for one call. This is the only one: `self` was consumed and
        // is not dropped.
        unsafe { (deleter.call)(deleter.context, data.as_ptr()) };
    }
}

impl Drop for Deleter {
    fn drop(&mut self) {
        // SAFETY: guaranteed by the constructors for one call. This is the only one: `run` does not drop
        // `self`. Null means that there is no data.
        unsafe { (self.call)(self.context, ptr::null_mut()) };
    }
}

// SAFETY: `from_fn` requires that the function may be called from any thread, `from_closure` that the closure
// is `Send`.
unsafe impl Send for Deleter {}
// SAFETY: a shared `Deleter` gives access to the context's address only.
unsafe impl Sync for Deleter {}

impl fmt::Debug for Deleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deleter").field("context", &self.context).finish_non_exhaustive()
    }
}
