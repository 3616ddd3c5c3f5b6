//! What to call when foreign memory is no longer used.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// A function and a context, called once with the data pointer.
///
/// A plain function costs no allocation (P2); a closure is boxed once, and its box is the context.
pub struct Deleter {
    call: unsafe fn(context: *mut c_void, data: *mut u8),
    context: *mut c_void,
}

impl Deleter {
    /// Calls `function(context, data)`; `data` is null if the deleter goes without ever having had a block.
    ///
    /// # Safety
    ///
    /// Calling `function` once, from any thread, with this context and the block's data pointer (or null)
    /// is sound.
    #[must_use]
    pub const unsafe fn from_fn(
        function: unsafe fn(context: *mut c_void, data: *mut u8),
        context: *mut c_void,
    ) -> Self {
        Self { call: function, context }
    }

    /// Calls a closure with the data pointer, null as for [`Deleter::from_fn`].
    pub fn from_closure<F: FnOnce(*mut u8) + Send + 'static>(closure: F) -> Self {
        unsafe fn call<F: FnOnce(*mut u8)>(context: *mut c_void, data: *mut u8) {
            // SAFETY: `context` is the box made below, handed back once: `run` consumes the deleter.
            let closure = unsafe { Box::from_raw(context.cast::<F>()) };
            closure(data);
        }
        Self { call: call::<F>, context: Box::into_raw(Box::new(closure)).cast() }
    }

    /// Keeps `owner` alive until the block goes, then drops it.
    pub fn from_owner<T: Send + 'static>(owner: T) -> Self {
        Self::from_closure(move |_| drop(owner))
    }

    /// The deleter's context, as given or the closure's box.
    #[must_use]
    pub fn context(&self) -> *mut c_void {
        self.context
    }

    pub(crate) fn run(self, data: NonNull<u8>) {
        let deleter = ManuallyDrop::new(self);
        // SAFETY: the constructors' promises; `self` was consumed and will not be dropped: the one call.
        unsafe { (deleter.call)(deleter.context, data.as_ptr()) };
    }
}

impl Drop for Deleter {
    fn drop(&mut self) {
        // SAFETY: `run` does not drop `self`, so nothing was called yet; null says that there was no data.
        unsafe { (self.call)(self.context, ptr::null_mut()) };
    }
}

// SAFETY: `from_fn` demands that the call may come from any thread; `from_closure` that the closure is `Send`.
unsafe impl Send for Deleter {}
// SAFETY: a shared `Deleter` gives nothing but the context's address.
unsafe impl Sync for Deleter {}

impl fmt::Debug for Deleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deleter").field("context", &self.context).finish_non_exhaustive()
    }
}
