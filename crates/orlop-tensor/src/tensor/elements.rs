//! Iterators over elements, over any strides.

use super::Tensor;
use crate::error::Result;
use crate::plain::Plain;
use crate::storage::{ReadGuard, TensorImpl, WriteGuard};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Iterates over the offsets of a layout's elements from the first one, in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct Offsets<'a> {
    sizes: &'a [usize],
    strides: &'a [usize],
    /// The next index; empty for no dimensions.
    index: Vec<usize>,
    offset: usize,
    left: usize,
}

impl<'a> Offsets<'a> {
    pub(crate) fn new(sizes: &'a [usize], strides: &'a [usize]) -> Self {
        // Fits, or is zero because a size is zero.
        let left = sizes.iter().fold(1usize, |product, &size| product.wrapping_mul(size));
        let left = if sizes.contains(&0) { 0 } else { left };
        Self { sizes, strides, index: vec![0; sizes.len()], offset: 0, left }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
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

/// Iterates over the elements of an accessor, in row-major order.
#[derive(Debug, Clone)]
pub struct Elements<'a, T> {
    first: NonNull<T>,
    offsets: Offsets<'a>,
    elements: PhantomData<&'a T>,
}

impl<'a, T: Plain> Elements<'a, T> {
    /// # Safety
    ///
    /// Every index below `sizes` gives an element that is valid and not written during `'a`.
    pub(super) unsafe fn new(first: NonNull<T>, sizes: &'a [usize], strides: &'a [usize]) -> Self {
        Self { first, offsets: Offsets::new(sizes, strides), elements: PhantomData }
    }
}

impl<T: Plain> Iterator for Elements<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let offset = self.offsets.next()?;
        // SAFETY: the offset of an index below the sizes (the contract of `new`).
        let place = unsafe { self.first.add(offset) };
        // SAFETY: as above; nothing writes it.
        Some(unsafe { place.read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.offsets.left, Some(self.offsets.left))
    }
}

impl<T: Plain> ExactSizeIterator for Elements<'_, T> {}
impl<T: Plain> FusedIterator for Elements<'_, T> {}

/// Iterates mutably over the elements of a mutable accessor, in row-major order.
#[derive(Debug)]
pub struct ElementsMut<'a, T> {
    first: NonNull<T>,
    offsets: Offsets<'a>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T: Plain> ElementsMut<'a, T> {
    /// # Safety
    ///
    /// Every index below `sizes` gives a distinct element that is valid, and that nothing else accesses,
    /// during `'a`.
    pub(super) unsafe fn new(first: NonNull<T>, sizes: &'a [usize], strides: &'a [usize]) -> Self {
        Self { first, offsets: Offsets::new(sizes, strides), elements: PhantomData }
    }
}

impl<'a, T: Plain> Iterator for ElementsMut<'a, T> {
    type Item = &'a mut T;

    #[inline]
    fn next(&mut self) -> Option<&'a mut T> {
        let offset = self.offsets.next()?;
        // SAFETY: the offset of an index below the sizes (the contract of `new`).
        let mut place = unsafe { self.first.add(offset) };
        // SAFETY: as above; each index comes once, so there is no other reference to its element.
        Some(unsafe { place.as_mut() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.offsets.left, Some(self.offsets.left))
    }
}

impl<T: Plain> ExactSizeIterator for ElementsMut<'_, T> {}
impl<T: Plain> FusedIterator for ElementsMut<'_, T> {}

/// Iterates over the elements of a tensor, in row-major order, with a read guard.
#[derive(Debug)]
pub struct TensorElements<'a, T> {
    elements: Elements<'a, T>,
    _guard: ReadGuard<'a>,
}

/// The elements of a tensor, in row-major order, with a write guard. See [`Tensor::elements_mut`].
#[derive(Debug)]
pub struct TensorElementsMut<'a, T> {
    first: NonNull<T>,
    sizes: &'a [usize],
    strides: &'a [usize],
    elements: PhantomData<&'a mut T>,
    _guard: WriteGuard<'a>,
}

impl Tensor {
    /// Iterates over the elements in row-major order, for any number of dimensions.
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
        let (guard, first) = imp.read_first()?;
        // SAFETY: `read_first` has checked that all elements are inside the storage, which is valid while the
        // tensor is borrowed; nothing writes while the guard exists, which is stored beside the iterator.
        let elements = unsafe { Elements::new(first, imp.layout.shape(), imp.layout.strides()) };
        Ok(TensorElements { elements, _guard: guard })
    }

    /// Borrows the elements for reading and writing in row-major order, for any number of dimensions. A
    /// deferred copy is made first.
    ///
    /// The result holds the write guard and lends the elements to loops: a reference to an element must not
    /// outlive it.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::zeros([2, 3], DType::I32)?;
    /// for (count, element) in tensor.t()?.elements_mut::<i32>()?.iter_mut().enumerate() {
    ///     *element = i32::try_from(count).unwrap_or(0);
    /// }
    /// assert_eq!(tensor.to_vec::<i32>()?, [0, 2, 4, 1, 3, 5]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::accessor_mut`]: [`Error::InternalOverlap`](crate::Error::InternalOverlap) if
    /// elements share memory.
    pub fn elements_mut<T: Plain>(&self) -> Result<TensorElementsMut<'_, T>> {
        let imp: &TensorImpl = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        imp.check_apart()?;
        let (guard, first) = imp.write_first()?;
        let (sizes, strides) = (&imp.layout.shape()[..], &imp.layout.strides()[..]);
        Ok(TensorElementsMut { first, sizes, strides, elements: PhantomData, _guard: guard })
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
impl<T: Plain> FusedIterator for TensorElements<'_, T> {}

impl<T: Plain> TensorElementsMut<'_, T> {
    /// Iterates mutably from the first element.
    pub fn iter_mut(&mut self) -> ElementsMut<'_, T> {
        // SAFETY: `write_first` (in `elements_mut`) has checked that all elements are inside the storage,
        // which is valid while the tensor is borrowed; nothing else accesses them while the guard exists, and
        // it is borrowed exclusively; no two elements share memory (`check_apart`).
        unsafe { ElementsMut::new(self.first, self.sizes, self.strides) }
    }
}

impl<'a, T: Plain> IntoIterator for &'a mut TensorElementsMut<'_, T> {
    type Item = &'a mut T;
    type IntoIter = ElementsMut<'a, T>;

    fn into_iter(self) -> ElementsMut<'a, T> {
        self.iter_mut()
    }
}
