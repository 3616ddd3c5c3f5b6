//! Elements one after the other, over any strides.

use super::{Tensor, TensorImpl};
use crate::error::Result;
use crate::plain::Plain;
use crate::storage::ReadGuard;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The offsets of a layout's elements from the first, in row-major order.
#[derive(Debug, Clone)]
pub(super) struct Offsets<'a> {
    sizes: &'a [usize],
    strides: &'a [usize],
    /// The next index; empty for no dimensions.
    index: Vec<usize>,
    offset: usize,
    left: usize,
}

impl<'a> Offsets<'a> {
    pub(super) fn new(sizes: &'a [usize], strides: &'a [usize]) -> Self {
        // Fits, or some size is zero.
        let left = sizes.iter().fold(1usize, |product, &size| product.wrapping_mul(size));
        let left = if sizes.contains(&0) { 0 } else { left };
        Self { sizes, strides, index: vec![0; sizes.len()], offset: 0, left }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.offset;
        for dim in (0..self.sizes.len()).rev() {
            self.index[dim] += 1;
            if self.index[dim] < self.sizes[dim] {
                self.offset += self.strides[dim];
                return Some(here);
            }
            self.offset -= (self.sizes[dim] - 1) * self.strides[dim];
            self.index[dim] = 0;
        }
        Some(here)
    }
}

/// The elements of an accessor, in row-major order.
#[derive(Debug, Clone)]
pub struct Elements<'a, T> {
    first: NonNull<T>,
    offsets: Offsets<'a>,
    elements: PhantomData<&'a T>,
}

impl<'a, T: Plain> Elements<'a, T> {
    /// # Safety
    ///
    /// Every index below `sizes` leads to an element that lives, and nobody writes, for as long as `'a`.
    pub(super) unsafe fn new(first: NonNull<T>, sizes: &'a [usize], strides: &'a [usize]) -> Self {
        Self { first, offsets: Offsets::new(sizes, strides), elements: PhantomData }
    }
}

impl<T: Plain> Iterator for Elements<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let offset = self.offsets.next()?;
        // SAFETY: of an index below the sizes (the promise of `new`).
        let place = unsafe { self.first.add(offset) };
        // SAFETY: as above; nobody writes it.
        Some(unsafe { place.read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.offsets.left, Some(self.offsets.left))
    }
}

impl<T: Plain> ExactSizeIterator for Elements<'_, T> {}

/// The elements of a tensor, in row-major order, for as long as nobody may write them.
#[derive(Debug)]
pub struct TensorElements<'a, T> {
    elements: Elements<'a, T>,
    _guard: ReadGuard<'a>,
}

impl Tensor {
    /// The elements in row-major order, whatever the number of dimensions.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::I32)?.view([2, 3])?;
    /// assert_eq!(tensor.t()?.iter::<i32>()?.collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::accessor`].
    pub fn iter<T: Plain>(&self) -> Result<TensorElements<'_, T>> {
        let imp: &TensorImpl = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        let guard = imp.storage.cell().read()?;
        let first = imp.first(guard.host()?, guard.bytes())?;
        // SAFETY: `first` has seen that all elements lie inside the storage, which lives as long as the tensor is borrowed;
        // nobody writes while the guard lives, which is kept beside.
        let elements = unsafe { Elements::new(first, imp.layout.shape(), imp.layout.strides()) };
        Ok(TensorElements { elements, _guard: guard })
    }
}

impl<T: Plain> Iterator for TensorElements<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.elements.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

impl<T: Plain> ExactSizeIterator for TensorElements<'_, T> {}
