//! Elements as slices, and what every typed access checks.

use super::{Tensor, TensorImpl};
use crate::error::{Error, Result};
use crate::host;
use crate::plain::Plain;
use crate::storage::{ReadGuard, WriteGuard};
use orlop_core::{DType, Element, Layout, Overlap};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// The elements of a contiguous tensor, for as long as nobody may write them.
#[derive(Debug)]
pub struct TensorSlice<'a, T> {
    ptr: NonNull<T>,
    len: usize,
    _guard: ReadGuard<'a>,
}

/// The elements of a contiguous tensor, for as long as nobody else may read or write them.
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

    /// Refuses writes that would show elsewhere.
    pub(crate) fn check_apart(&self) -> Result<()> {
        match self.layout.is_contiguous() || self.layout.internal_overlap() == Overlap::No {
            true => Ok(()),
            false => Err(Error::InternalOverlap),
        }
    }

    /// Where the layout counts its offset from: the storage's first byte, of a block that begins at `host` and has `bytes`
    /// in use. All elements lie inside. Anywhere if there are none.
    #[inline]
    pub(crate) fn origin(&self, host: NonNull<u8>, bytes: usize) -> Result<NonNull<u8>> {
        if self.layout.is_empty() {
            return Ok(host);
        }
        let (storage, itemsize) = (self.storage(), self.dtype.size());
        self.layout.check_within(storage.bytes_of(bytes), itemsize)?;
        // SAFETY: inside the block: at least one element lies behind it.
        Ok(unsafe { host.add(storage.start()) })
    }

    /// Where the first element is, as a `T` of the tensor's dtype.
    #[inline]
    pub(crate) fn first<T: Plain>(&self, host: NonNull<u8>, bytes: usize) -> Result<NonNull<T>> {
        if self.layout.is_empty() {
            return Ok(NonNull::dangling());
        }
        let origin = self.origin(host, bytes)?;
        // SAFETY: the first element lies inside (`origin`), so the product fits.
        let first = unsafe { origin.add(self.layout.offset() * size_of::<T>()) }.cast::<T>();
        if first.is_aligned() {
            Ok(first)
        } else {
            Err(Error::Misaligned { address: first.addr().get(), align: align_of::<T>() })
        }
    }
}

impl Tensor {
    /// The elements, in order, as a slice.
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
    /// [`Error::DTypeMismatch`]; [`Error::NotContiguous`]; [`Error::Borrowed`] while somebody writes;
    /// [`Error::Misaligned`] for memory from outside; those of [`Storage::read`](crate::Storage::read).
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

    /// The elements, in order, as a slice to be written. A copy that was put off is made first.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::as_slice`], and [`Error::Borrowed`] while somebody reads; [`Error::ReadOnly`].
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

    /// The elements in row-major order, from whichever device and strides.
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`]; [`Error::Borrowed`] while somebody writes; [`Error::HostMemory`], and those of the device;
    /// an error of the layout if the storage was resized under it.
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>> {
        let imp = self.imp()?;
        imp.check_dtype(E::DTYPE)?;
        // Before there is room for elements that are not there. The copy asks again, under its guard.
        imp.layout.check_within(imp.storage().nbytes(), imp.dtype.size())?;
        let mut elements = host::room::<E>(imp.layout.numel())?;
        let dense = Layout::contiguous(imp.layout.shape().clone());
        let to = NonNull::from(elements.spare_capacity_mut()).cast::<u8>();
        // SAFETY: room for as many elements of the dtype as the layout has.
        unsafe { super::ops::copy_out(imp, to, &dense) }?;
        // SAFETY: all were written; whatever bytes there were for `bool`, zeros and ones arrived.
        unsafe { elements.set_len(imp.layout.numel()) };
        Ok(elements)
    }

    /// The only element.
    ///
    /// # Errors
    ///
    /// [`Error::CountMismatch`] if there is another number of them; those of [`Tensor::to_vec`].
    pub fn item<E: Element>(&self) -> Result<E> {
        self.imp()?.check_dtype(E::DTYPE)?;
        // Before all of them are fetched.
        let only = if self.numel() == 1 { self.to_vec()?.pop() } else { None };
        only.ok_or_else(|| Error::CountMismatch { expected: 1, actual: self.numel() })
    }
}

impl<T> Deref for TensorSlice<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `first` has seen `len` elements from `ptr` on inside the storage, aligned; any bytes are elements (the
        // `T` is `Plain`); nobody writes while the guard lives.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> Deref for TensorSliceMut<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: as for `TensorSlice`; nobody else writes while the guard lives.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for TensorSliceMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; nobody else reads either, and the guard is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

// SAFETY: shared access to elements that nobody writes.
unsafe impl<T: Sync> Send for TensorSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSlice<'_, T> {}
// SAFETY: the only access to the elements, given out as references are.
unsafe impl<T: Send> Send for TensorSliceMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSliceMut<'_, T> {}
