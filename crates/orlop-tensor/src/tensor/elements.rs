//! Elements one after the other, over any strides.

use super::{Tensor, TensorImpl};
use crate::error::Result;
use crate::plain::Plain;
use crate::storage::{ReadGuard, WriteGuard};
use std::iter::FusedIterator;
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
impl<T: Plain> FusedIterator for Elements<'_, T> {}

/// The elements of a mutable accessor, in row-major order, to be read and written.
#[derive(Debug)]
pub struct ElementsMut<'a, T> {
    first: NonNull<T>,
    offsets: Offsets<'a>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T: Plain> ElementsMut<'a, T> {
    /// # Safety
    ///
    /// Every index below `sizes` leads to an element of its own, that lives, and nobody else reads or writes, for as long
    /// as `'a`.
    pub(super) unsafe fn new(first: NonNull<T>, sizes: &'a [usize], strides: &'a [usize]) -> Self {
        Self { first, offsets: Offsets::new(sizes, strides), elements: PhantomData }
    }
}

impl<'a, T: Plain> Iterator for ElementsMut<'a, T> {
    type Item = &'a mut T;

    #[inline]
    fn next(&mut self) -> Option<&'a mut T> {
        let offset = self.offsets.next()?;
        // SAFETY: of an index below the sizes (the promise of `new`).
        let mut place = unsafe { self.first.add(offset) };
        // SAFETY: as above; each index comes once, so no other reference leads to its element.
        Some(unsafe { place.as_mut() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.offsets.left, Some(self.offsets.left))
    }
}

impl<T: Plain> ExactSizeIterator for ElementsMut<'_, T> {}
impl<T: Plain> FusedIterator for ElementsMut<'_, T> {}

/// The elements of a tensor, in row-major order, for as long as nobody may write them.
#[derive(Debug)]
pub struct TensorElements<'a, T> {
    elements: Elements<'a, T>,
    _guard: ReadGuard<'a>,
}

/// The elements of a tensor, in row-major order, for as long as nobody else may read or write them. See
/// [`Tensor::elements_mut`].
#[derive(Debug)]
pub struct TensorElementsMut<'a, T> {
    first: NonNull<T>,
    sizes: &'a [usize],
    strides: &'a [usize],
    elements: PhantomData<&'a mut T>,
    _guard: WriteGuard<'a>,
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
        let guard = imp.storage().cell().read()?;
        let first = imp.first(guard.host()?, guard.bytes())?;
        // SAFETY: `first` has seen that all elements lie inside the storage, which lives as long as the tensor is borrowed;
        // nobody writes while the guard lives, which is kept beside.
        let elements = unsafe { Elements::new(first, imp.layout.shape(), imp.layout.strides()) };
        Ok(TensorElements { elements, _guard: guard })
    }

    /// The elements to be read and written in row-major order, whatever the number of dimensions. A copy that was put off
    /// is made first.
    ///
    /// What is returned holds the storage, and lends the elements to loops: a reference to one must not outlive it.
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
    /// Those of [`Tensor::accessor_mut`]: [`Error::InternalOverlap`](crate::Error::InternalOverlap) if elements share
    /// memory.
    pub fn elements_mut<T: Plain>(&self) -> Result<TensorElementsMut<'_, T>> {
        let imp: &TensorImpl = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        imp.check_apart()?;
        let guard = imp.storage().cell().write()?;
        let first = imp.first(guard.host()?, guard.bytes())?;
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
    /// From the first element on.
    pub fn iter_mut(&mut self) -> ElementsMut<'_, T> {
        // SAFETY: `first` (of `elements_mut`) has seen that all elements lie inside the storage, which lives as long as the
        // tensor is borrowed; nobody else reads or writes while the guard lives, and it is borrowed exclusively; no two
        // elements share memory (`check_apart`).
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
