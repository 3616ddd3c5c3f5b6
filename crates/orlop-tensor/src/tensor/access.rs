//! Elements as slices, and the checks of every typed access.

use super::Tensor;
use crate::error::{Error, Result};
use crate::host;
use crate::plain::Plain;
use crate::storage::{ReadGuard, Registration, TensorImpl, TensorSlice, TensorSliceMut, WriteGuard};
use orlop_alloc::MemoryBlock;
use orlop_core::{DType, Element, Layout, Overlap};
use std::ops::Range;
use std::ptr::NonNull;

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

    /// Acquires a read guard of the bytes from the first element to the end of the last.
    #[inline]
    pub(crate) fn read(&self) -> Result<ReadGuard<'_>> {
        let cell = self.storage().cell();
        if self.reaches_last()
            && let Some(guard) = cell.try_read()
        {
            return Ok(guard);
        }
        cell.read_range(self.hull())
    }

    /// Acquires a write guard of the bytes from the first element to the end of the last.
    #[inline]
    pub(crate) fn write(&self) -> Result<WriteGuard<'_>> {
        let cell = self.storage().cell();
        if self.reaches_last()
            && let Some(guard) = cell.try_write()
        {
            return Ok(guard);
        }
        match cell.write_range(self.hull()) {
            Ok(guard) => Ok(guard),
            Err(error) => Err(error),
        }
    }

    /// [`TensorImpl::is_whole`] for any dtype. An end that overflows is refused under either guard.
    #[inline]
    fn reaches_last(&self) -> bool {
        let (elements, storage) = (self.layout.element_range(), self.storage());
        let end = elements.end.wrapping_mul(self.dtype.size());
        elements.start == 0 && storage.is_whole() && end > storage.cell().last()
    }

    /// Acquires a read guard, and returns it with the address of the first element, as a `T` of the tensor's
    /// dtype. All elements are inside the storage; without elements, any aligned address is returned.
    #[inline]
    pub(crate) fn read_first<T: Plain>(&self) -> Result<(ReadGuard<'_>, NonNull<T>)> {
        if self.is_whole::<T>()
            && let Some(guard) = self.storage().cell().try_read()
            && let Some(first) = self.first_of_whole(guard.block(), guard.bytes())
        {
            return Ok((guard, first));
        }
        if let Some(first) = self.first_of_constant(align_of::<T>()) {
            return Ok((ReadGuard::new(self.storage().cell(), Registration::NONE), first.cast()));
        }
        // The result is taken apart so that the fast path has none in memory.
        match self.read_first_slowly(align_of::<T>()) {
            Ok((guard, first)) => Ok((guard, first.cast())),
            Err(error) => Err(error),
        }
    }

    #[inline(never)]
    fn read_first_slowly(&self, align: usize) -> Result<(ReadGuard<'_>, NonNull<u8>)> {
        let guard = self.read()?;
        let first = self.first(guard.host()?, guard.bytes(), align)?;
        Ok((guard, first))
    }

    /// Returns the address of the first element in a storage that is constant, so that it is read without a
    /// registration: the fast path.
    #[inline(never)]
    fn first_of_constant(&self, align: usize) -> Option<NonNull<u8>> {
        let guard = self.storage().cell().try_read_constant()?;
        let (layout, itemsize, block) = (&self.layout, self.dtype.size(), guard.block());
        let end = layout.element_range().end.checked_mul(itemsize)?;
        let is_inside = end <= self.storage().bytes_of(guard.bytes()) && !layout.is_empty();
        if !is_inside || !block.is_host_accessible() {
            return None;
        }
        // SAFETY: the first element is before the end, which is inside the storage's bytes in use.
        let first = unsafe { block.ptr.add(self.storage().start() + layout.offset() * itemsize) };
        is_aligned(first, align).then_some(first)
    }

    /// [`TensorImpl::read_first`] with a write guard.
    #[inline]
    pub(crate) fn write_first<T: Plain>(&self) -> Result<(WriteGuard<'_>, NonNull<T>)> {
        if self.is_whole::<T>()
            && let Some(guard) = self.storage().cell().try_write()
            && let Some(first) = self.first_of_whole(guard.block(), guard.bytes())
        {
            return Ok((guard, first));
        }
        match self.write_first_slowly(align_of::<T>()) {
            Ok((guard, first)) => Ok((guard, first.cast())),
            Err(error) => Err(error),
        }
    }

    #[inline(never)]
    fn write_first_slowly(&self, align: usize) -> Result<(WriteGuard<'_>, NonNull<u8>)> {
        let guard = self.write()?;
        let first = self.first(guard.host()?, guard.bytes(), align)?;
        Ok((guard, first))
    }

    /// Returns `true` if the elements, of `T`'s size, begin at the start of the storage and reach its last
    /// byte, so that an access to them is one to the whole.
    #[inline]
    fn is_whole<T: Plain>(&self) -> bool {
        let (elements, storage) = (self.layout.element_range(), self.storage());
        elements.start == 0 && storage.is_whole() && elements.end > storage.cell().last() / size_of::<T>()
    }

    /// Returns the address of the first element, of elements that [are the whole](Self::is_whole), if the CPU
    /// can access it, it is aligned, and all elements are inside of the `bytes` in use.
    #[inline]
    fn first_of_whole<T: Plain>(&self, block: &MemoryBlock, bytes: usize) -> Option<NonNull<T>> {
        let first = block.ptr.cast::<T>();
        let is_inside = self.layout.element_range().end <= bytes / size_of::<T>();
        (is_inside && block.is_host_accessible() && first.is_aligned()).then_some(first)
    }

    /// Returns the range of the storage from the first byte of an element to the last, gaps included.
    /// Elements may be outside of the storage.
    fn hull(&self) -> Range<usize> {
        let (elements, itemsize) = (self.layout.element_range(), self.dtype.size());
        let place = |element: usize| element.saturating_mul(itemsize).saturating_add(self.storage().start());
        place(elements.start)..place(elements.end)
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
        let bytes = storage.bytes_of(bytes);
        let end = self.layout.element_range().end.checked_mul(itemsize);
        if end.is_none_or(|end| end > bytes) {
            self.layout.check_within(bytes, itemsize)?;
        }
        // SAFETY: inside the block: at least one element follows.
        Ok(unsafe { host.add(storage.start()) })
    }

    /// Returns the address of the first element, which is a multiple of `align`.
    pub(crate) fn first(&self, host: NonNull<u8>, bytes: usize, align: usize) -> Result<NonNull<u8>> {
        if self.layout.is_empty() {
            return Ok(NonNull::new(std::ptr::without_provenance_mut(align)).unwrap_or(NonNull::dangling()));
        }
        let origin = self.origin(host, bytes)?;
        // SAFETY: the first element is inside (`origin`), so the product fits.
        let first = unsafe { origin.add(self.layout.offset() * self.dtype.size()) };
        let address = first.addr().get();
        if is_aligned(first, align) { Ok(first) } else { Err(Error::Misaligned { address, align }) }
    }
}

/// Returns `true` if the address is a multiple of `align`, a power of two: without a division.
#[inline]
fn is_aligned(ptr: NonNull<u8>, align: usize) -> bool {
    ptr.addr().get() & (align - 1) == 0
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
        let (guard, ptr) = imp.read_first()?;
        // SAFETY: `read_first` has checked the elements, and any bytes are valid ones (`T` is `Plain`).
        Ok(unsafe { TensorSlice::new(ptr, imp.layout.numel(), guard) })
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
        let (guard, ptr) = imp.write_first()?;
        // SAFETY: as in `as_slice`, by `write_first`.
        Ok(unsafe { TensorSliceMut::new(ptr, imp.layout.numel(), guard) })
    }

    /// Copies the elements to a vector in row-major order, from any device and strides.
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`]; [`Error::Unbound`]; [`Error::Borrowed`] during a write;
    /// [`Error::HostMemory`], and those of the device; [`Error::Layout`] if the storage has become too small.
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>> {
        let imp = self.imp()?;
        imp.check_dtype(E::DTYPE)?;
        // Before memory is reserved for elements that are not there. The copy checks again, under its guard.
        imp.storage().check_bytes(&imp.layout, imp.dtype)?;
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
