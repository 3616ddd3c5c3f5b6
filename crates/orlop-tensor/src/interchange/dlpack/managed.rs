//! A managed tensor that is ours to delete.

use super::abi::{DLDeleter, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use super::error::DlpackError;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Either kind of managed tensor: [`DLManagedTensorVersioned`] and [`DLManagedTensor`].
pub trait ManagedTensor: sealed::Abi {}

impl ManagedTensor for DLManagedTensorVersioned {}
impl ManagedTensor for DLManagedTensor {}

pub(super) mod sealed {
    use super::{DLDeleter, DLTensor, DlpackError};
    use std::ffi::c_void;
    use std::ptr::NonNull;

    /// What differs between them.
    pub trait Abi: Sized + 'static {
        /// A managed tensor with these parts. Flags that it has no room for are lost.
        fn new(tensor: DLTensor, context: *mut c_void, deleter: DLDeleter<Self>, flags: u64) -> Self;

        /// The producer's own pointer.
        ///
        /// # Safety
        ///
        /// `this` is valid for reads, at least up to its flags.
        unsafe fn context(this: NonNull<Self>) -> *mut c_void;

        /// What to call at the end.
        ///
        /// # Safety
        ///
        /// As for [`Abi::context`].
        unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>>;

        /// The tensor and the flags, if the version is one whose layout is known.
        ///
        /// # Safety
        ///
        /// As for [`Abi::context`], and `this` is valid for reads as a whole if its version is known.
        unsafe fn open(this: NonNull<Self>) -> Result<(DLTensor, u64), DlpackError>;
    }
}

impl sealed::Abi for DLManagedTensorVersioned {
    fn new(tensor: DLTensor, context: *mut std::ffi::c_void, deleter: DLDeleter<Self>, flags: u64) -> Self {
        Self {
            version: DLPackVersion::CURRENT,
            manager_ctx: context,
            deleter: Some(deleter),
            flags,
            dl_tensor: tensor,
        }
    }

    unsafe fn context(this: NonNull<Self>) -> *mut std::ffi::c_void {
        // SAFETY: the caller's promise. No reference: behind the flags may be nothing.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>> {
        // SAFETY: the caller's promise. No reference: behind the flags may be nothing.
        unsafe { (*this.as_ptr()).deleter }
    }

    unsafe fn open(this: NonNull<Self>) -> Result<(DLTensor, u64), DlpackError> {
        // SAFETY: the caller's promise. No reference: behind the flags may be nothing.
        let DLPackVersion { major, minor } = unsafe { (*this.as_ptr()).version };
        if major != DLPackVersion::CURRENT.major {
            return Err(DlpackError::Version { major, minor });
        }
        // SAFETY: a known version: valid as a whole, by the caller's promise.
        let managed = unsafe { this.as_ref() };
        Ok((managed.dl_tensor, managed.flags))
    }
}

impl sealed::Abi for DLManagedTensor {
    fn new(tensor: DLTensor, context: *mut std::ffi::c_void, deleter: DLDeleter<Self>, _: u64) -> Self {
        Self { dl_tensor: tensor, manager_ctx: context, deleter: Some(deleter) }
    }

    unsafe fn context(this: NonNull<Self>) -> *mut std::ffi::c_void {
        // SAFETY: the caller's promise.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>> {
        // SAFETY: the caller's promise.
        unsafe { (*this.as_ptr()).deleter }
    }

    unsafe fn open(this: NonNull<Self>) -> Result<(DLTensor, u64), DlpackError> {
        // SAFETY: the caller's promise.
        Ok((unsafe { (*this.as_ptr()).dl_tensor }, 0))
    }
}

/// A managed tensor with the duty to delete it: dropping it calls the deleter, [`Managed::into_raw`] passes the duty on.
pub struct Managed<M: ManagedTensor> {
    /// Invariant: the promises of [`Managed::from_raw`].
    raw: NonNull<M>,
}

/// A tensor for other frameworks, in the structure that versions of DLPack since 1.0 use.
pub type DlpackTensor = Managed<DLManagedTensorVersioned>;

/// A tensor for other frameworks, in the structure from before DLPack 1.0.
pub type LegacyDlpackTensor = Managed<DLManagedTensor>;

impl<M: ManagedTensor> Managed<M> {
    /// Takes over the duty to delete a managed tensor.
    ///
    /// # Safety
    ///
    /// 1. `raw` points to a managed tensor, of a known version or with its deleter where DLPack says that it always is;
    /// 2. nobody else deletes or changes it;
    /// 3. its deleter may be called once, from any thread, and does not unwind.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<M>) -> Self {
        Self { raw }
    }

    /// The managed tensor, to look at or to pass on without the duty.
    #[must_use]
    pub fn as_ptr(&self) -> *mut M {
        self.raw.as_ptr()
    }

    /// Passes the duty to delete it on: to whoever gets the pointer.
    ///
    /// ```
    /// use orlop_tensor::{Tensor, interchange::dlpack};
    ///
    /// let tensor = Tensor::from_slice(&[1.0f32, 2.0])?;
    /// let raw = dlpack::export(&tensor)?.into_raw();
    /// // ... C code gets `raw`, and in the end does this:
    /// // SAFETY: exported just now, and deleted once.
    /// drop(unsafe { dlpack::DlpackTensor::from_raw(raw) });
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    #[must_use = "whoever gets the pointer has to call the deleter"]
    pub fn into_raw(self) -> NonNull<M> {
        ManuallyDrop::new(self).raw
    }
}

impl<M: ManagedTensor> Drop for Managed<M> {
    fn drop(&mut self) {
        // SAFETY: a managed tensor (1).
        let deleter = unsafe { M::deleter(self.raw) };
        if let Some(deleter) = deleter {
            // SAFETY: the one call (2, 3): `self` goes.
            unsafe { deleter(self.raw.as_ptr()) };
        }
    }
}

// SAFETY: deleters may be called from any thread (3), and nobody else has the managed tensor (2).
unsafe impl<M: ManagedTensor> Send for Managed<M> {}
// SAFETY: a shared handle gives nothing but the address.
unsafe impl<M: ManagedTensor> Sync for Managed<M> {}

impl<M: ManagedTensor> fmt::Debug for Managed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Managed").field(&self.raw).finish()
    }
}
