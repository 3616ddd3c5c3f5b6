//! The values in a storage as slices, with a guard.

use super::{ReadGuard, WriteGuard};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// The elements of a contiguous tensor, or the bytes of a storage, with a read guard.
#[derive(Debug)]
pub struct TensorSlice<'a, T> {
    /// Invariant: the first of `len` values as [`TensorSlice::new`] requires them.
    ptr: NonNull<T>,
    len: usize,
    _guard: ReadGuard<'a>,
}

/// The elements of a contiguous tensor, or the bytes of a storage, with a write guard.
#[derive(Debug)]
pub struct TensorSliceMut<'a, T> {
    /// Invariant: the first of `len` values as [`TensorSliceMut::new`] requires them.
    ptr: NonNull<T>,
    len: usize,
    _guard: WriteGuard<'a>,
}

impl<'a, T> TensorSlice<'a, T> {
    /// # Safety
    ///
    /// The `len` values from `ptr` are inside the host memory that `guard` protects, aligned and valid.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: NonNull<T>, len: usize, guard: ReadGuard<'a>) -> Self {
        Self { ptr, len, _guard: guard }
    }
}

impl<'a, T> TensorSliceMut<'a, T> {
    /// # Safety
    ///
    /// As for [`TensorSlice::new`], and any bytes are a valid `T`.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: NonNull<T>, len: usize, guard: WriteGuard<'a>) -> Self {
        Self { ptr, len, _guard: guard }
    }
}

impl<T> Deref for TensorSlice<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the invariant; nothing writes the values while the guard exists.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> Deref for TensorSliceMut<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the invariant; nothing else writes the values while the guard exists.
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

// SAFETY: shared access to values that nothing writes.
unsafe impl<T: Sync> Send for TensorSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSlice<'_, T> {}
// SAFETY: exclusive access to the values, which are handed out as references.
unsafe impl<T: Send> Send for TensorSliceMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TensorSliceMut<'_, T> {}
