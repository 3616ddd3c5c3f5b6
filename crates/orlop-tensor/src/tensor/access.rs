//! Elements as slices, and the checks of every typed access.

use super::Tensor;
use crate::error::{Error, Result};
use crate::host;
use crate::plain::Plain;
use crate::storage::{ReadGuard, TensorImpl, WriteGuard};
use orlop_core::{DType, Element, Layout, Overlap};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// The elements of a contiguous tensor, with a read guard.
#[derive(Debug)]
pub struct TensorSlice<'a, T> {
    ptr: NonNull<T>,
    len: usize,
    _guard: ReadGuard<'a>,
}

/// The elements of a contiguous tensor, with a write guard.
#[derive(Debug)]
pub struct TensorSliceMut<'a, T> {
    ptr: NonNull<T>,
    len: usize,
    _guard: WriteGuard<'a>,
}

impl TensorImpl {
    pub(crate) fn check_dtype(&self, expected: DType) -> Result<()> {
        if self.dtype == expected {
            Ok(())
        } else {
            Err(Error::DTypeMismatch { expected, actual: self.dtype })
        }
    }

    /// Fails if elements share memory, so that a write to one would change others.
    pub(crate) fn check_apart(&self) -> Result<()> {
        match self.layout.is_contiguous() || self.layout.internal_overlap() == Overlap::No {
            true => Ok(()),
            false => Err(Error::InternalOverlap),
        }
    }

    /// Returns the address that the layout's offset counts from: the storage's first byte, of a block that
    /// begins at `host` and has `bytes` in use. Checks that all elements are inside; without elements, any
    /// address is returned.
    #[inline]
    pub(crate) fn origin(&self, host: NonNull<u8>, bytes: usize) -> Result<NonNull<u8>> {
        if self.layout.is_empty() {
            return Ok(host);
        }
        let (storage, itemsize) = (self.storage(), self.dtype.size());
        self.layout.check_within(storage.bytes_of(bytes), itemsize)?;
        // SAFETY: inside the block: at least one element follows.
        Ok(unsafe { host.add(storage.start()) })
    }

    /// Returns the address of the first element, as a `T` of the tensor's dtype.
    #[inline]
    pub(crate) fn first<T: Plain>(&self, host: NonNull<u8>, bytes: usize) -> Result<NonNull<T>> {
        if self.layout.is_empty() {
            return Ok(NonNull::dangling());
        }
        let origin = self.origin(host, bytes)?;
        // SAFETY: the first element is inside (`origin`), so the product fits.
        let first = unsafe { origin.add(self.layout.offset() * size_of::<T>()) }.cast::<T>();
        if first.is_aligned() {
            Ok(first)
        } else {
            Err(Error::Misaligned { address: first.addr().get(), align: align_of::<T>() })
        }
    }
}

impl Tensor {
    /// Borrows the elements, in order, as a slice.
    ///
    /// ```
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::from_slice(&[1.0f32, 2.0, 3.0])?;
    /// assert_eq!(&*tensor.as_slice::<f32>()?, &[1.0, 2.0, 3.0]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`]; [`Error::NotContiguous`]; [`Error::Borrowed`] during a write;
    /// [`Error::Misaligned`] for foreign memory; those of [`Storage::read`](crate::Storage::read).
    #[inline]
    pub fn as_slice<T: Plain>(&self) -> Result<TensorSlice<'_, T>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        if !imp.layout.is_contiguous() {
            return Err(Error::NotContiguous);
        }
        let guard = imp.storage().cell().read()?;
        let ptr = imp.first(guard.host()?, guard.bytes())?;
        Ok(TensorSlice { ptr, len: imp.layout.numel(), _guard: guard })
    }

    /// Borrows the elements, in order, as a slice for writing. A deferred copy is made first.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::as_slice`], and [`Error::Borrowed`] during a read; [`Error::ReadOnly`].
    #[inline]
    pub fn as_mut_slice<T: Plain>(&self) -> Result<TensorSliceMut<'_, T>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        if !imp.layout.is_contiguous() {
            return Err(Error::NotContiguous);
        }
        let guard = imp.storage().cell().write()?;
        let ptr = imp.first(guard.host()?, guard.bytes())?;
        Ok(TensorSliceMut { ptr, len: imp.layout.numel(), _guard: guard })
    }

    /// Copies the elements to a vector in row-major order, from any device and strides.
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`]; [`Error::Borrowed`] during a write; [`Error::HostMemory`], and those of the
    /// device; [`Error::Layout`] if the storage has become too small.
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>> {
        let imp = self.imp()?;
        imp.check_dtype(E::DTYPE)?;
        // Before memory is reserved for elements that are not there. The copy checks again, under its guard.
        imp.layout.check_within(imp.storage().nbytes(), imp.dtype.size())?;
        let mut elements = host::room::<E>(imp.layout.numel())?;
        let dense = Layout::contiguous(imp.layout.shape().clone());
        let to = NonNull::from(elements.spare_capacity_mut()).cast::<u8>();
        // SAFETY: the vector has room for the elements of the layout.
        unsafe { super::ops::copy_out(imp, to, &dense) }?;
        // SAFETY: all were written; for `bool`, only zeros and ones are written.
        unsafe { elements.set_len(imp.layout.numel()) };
        Ok(elements)
    }

    /// Returns the only element.
    ///
    /// # Errors
    ///
    /// [`Error::CountMismatch`] if there is not exactly one; those of [`Tensor::to_vec`].
    pub fn item<E: Element>(&self) -> Result<E> {
        self.imp()?.check_dtype(E::DTYPE)?;
        // The count is checked before anything is copied.
        let only = if self.numel() == 1 { self.to_vec()?.pop() } else { None };
        only.ok_or_else(|| Error::CountMismatch { expected: 1, actual: self.numel() })
    }
}

impl<T> Deref for TensorSlice<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `first` has checked that `len` elements from `ptr` are inside the storage and aligned; any
        // bytes are valid elements (`T` is `Plain`); nothing writes while the guard exists.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> Deref for TensorSliceMut<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: as for `TensorSlice`; nothing else writes while the guard exists.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for TensorSliceMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; nothing else reads, either, and the guard is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

// SAFETY: shared access to elements that nothing writes.
unsafe impl<T: Sync> Send for TensorSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSlice<'_, T> {}
// SAFETY: exclusive access to the elements, which are handed out as references.
unsafe impl<T: Send> Send for TensorSliceMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSliceMut<'_, T> {}
