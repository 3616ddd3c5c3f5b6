//! [`Managed`]: an owned DLPack tensor.

use super::abi::{DLDeleter, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use crate::error::dlpack::DlpackError;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A managed tensor of either version: [`DLManagedTensorVersioned`] and [`DLManagedTensor`].
pub trait ManagedTensor: sealed::Abi {}

impl ManagedTensor for DLManagedTensorVersioned {}
impl ManagedTensor for DLManagedTensor {}

pub(super) mod sealed {
    use super::{DLDeleter, DLTensor, DlpackError};
    use std::ffi::c_void;
    use std::ptr::NonNull;

    /// The differences between the two versions.
    pub trait Abi: Sized + 'static {
        /// Creates a managed tensor. Flags are dropped if the structure has no field for them.
        fn new(tensor: DLTensor, context: *mut c_void, deleter: DLDeleter<Self>, flags: u64) -> Self;

        /// Returns the producer's private pointer.
        ///
        /// # Safety
        ///
        /// `this` is valid for reads, at least up to its flags.
        unsafe fn context(this: NonNull<Self>) -> *mut c_void;

        /// Returns the function to call at the end.
        ///
        /// # Safety
        ///
        /// As for [`Abi::context`].
        unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>>;

        /// Returns the tensor and the flags, if the version is supported.
        ///
        /// # Safety
        ///
        /// As for [`Abi::context`], and `this` is valid for reads entirely if its version is supported.
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
        // SAFETY: guaranteed by the caller. No reference: memory after the flags may be invalid.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>> {
        // SAFETY: guaranteed by the caller. No reference: memory after the flags may be invalid.
        unsafe { (*this.as_ptr()).deleter }
    }

    unsafe fn open(this: NonNull<Self>) -> Result<(DLTensor, u64), DlpackError> {
        // SAFETY: guaranteed by the caller. No reference: memory after the flags may be invalid.
        let DLPackVersion { major, minor } = unsafe { (*this.as_ptr()).version };
        if major != DLPackVersion::CURRENT.major {
            return Err(DlpackError::Version { major, minor });
        }
        // SAFETY: a supported version: valid entirely (guaranteed by the caller).
        let managed = unsafe { this.as_ref() };
        Ok((managed.dl_tensor, managed.flags))
    }
}

impl sealed::Abi for DLManagedTensor {
    fn new(tensor: DLTensor, context: *mut std::ffi::c_void, deleter: DLDeleter<Self>, _: u64) -> Self {
        Self { dl_tensor: tensor, manager_ctx: context, deleter: Some(deleter) }
    }

    unsafe fn context(this: NonNull<Self>) -> *mut std::ffi::c_void {
        // SAFETY: guaranteed by the caller.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<DLDeleter<Self>> {
        // SAFETY: guaranteed by the caller.
        unsafe { (*this.as_ptr()).deleter }
    }

    unsafe fn open(this: NonNull<Self>) -> Result<(DLTensor, u64), DlpackError> {
        // SAFETY: guaranteed by the caller.
        Ok((unsafe { (*this.as_ptr()).dl_tensor }, 0))
    }
}

/// An owned managed tensor. Dropping it calls the deleter; [`Managed::into_raw`] gives up ownership.
pub struct Managed<M: ManagedTensor> {
    /// Invariant: the obligations of [`Managed::from_raw`].
    raw: NonNull<M>,
}

/// An exported tensor, in the structure of DLPack 1.0 and later.
pub type DlpackTensor = Managed<DLManagedTensorVersioned>;

/// An exported tensor, in the structure from before DLPack 1.0.
pub type LegacyDlpackTensor = Managed<DLManagedTensor>;

impl<M: ManagedTensor> Managed<M> {
    /// Takes ownership of a managed tensor.
    ///
    /// # Safety
    ///
    /// 1. `raw` points to a managed tensor, of a supported version or with its deleter at DLPack's fixed
    ///    offset;
    /// 2. nothing else deletes or changes it;
    /// 3. its deleter may be called once, from any thread, and does not unwind.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<M>) -> Self {
        Self { raw }
    }

    /// Returns the pointer to the managed tensor, without ownership.
    #[must_use]
    pub fn as_ptr(&self) -> *mut M {
        self.raw.as_ptr()
    }

    /// Returns the pointer to the managed tensor and gives up ownership of it.
    ///
    /// ```
    /// use orlop_tensor::{Tensor, interchange::dlpack};
    ///
    /// let tensor = Tensor::from_slice(&[1.0f32, 2.0])?;
    /// let raw = dlpack::export(&tensor)?.into_raw();
    /// // ... C code gets `raw`, and finally does this:
    /// // SAFETY: just exported, and deleted once.
    /// drop(unsafe { dlpack::DlpackTensor::from_raw(raw) });
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    #[must_use = "the receiver of the pointer has to call the deleter"]
    pub fn into_raw(self) -> NonNull<M> {
        ManuallyDrop::new(self).raw
    }
}

impl<M: ManagedTensor> Drop for Managed<M> {
    fn drop(&mut self) {
        // SAFETY: a managed tensor (1).
        let deleter = unsafe { M::deleter(self.raw) };
        if let Some(deleter) = deleter {
            // SAFETY: the only call (2, 3), because `self` is dropped.
            unsafe { deleter(self.raw.as_ptr()) };
        }
    }
}

// SAFETY: deleters may be called from any thread (3), and nothing else uses the managed tensor (2).
unsafe impl<M: ManagedTensor> Send for Managed<M> {}
// SAFETY: a shared reference gives only the address.
unsafe impl<M: ManagedTensor> Sync for Managed<M> {}

impl<M: ManagedTensor> fmt::Debug for Managed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Managed").field(&self.raw).finish()
    }
}
