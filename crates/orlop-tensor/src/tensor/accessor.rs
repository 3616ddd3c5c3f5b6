//! Elements by index, over any strides.
//!
//! An accessor holds a read or a write guard of the storage. Sizes and strides are arrays, so an index costs
//! only multiplications and additions.

use super::Tensor;
use super::elements::{Elements, ElementsMut};
use crate::error::{Error, Result};
use crate::plain::Plain;
use crate::storage::{ReadGuard, WriteGuard};
use orlop_core::Layout;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;

/// The positions of elements with `N` indices.
///
/// Invariant: every index below `sizes` gives an element inside the storage, and no sum overflows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid<T, const N: usize> {
    pub(super) first: NonNull<T>,
    pub(super) sizes: [usize; N],
    pub(super) strides: [usize; N],
}

impl<T, const N: usize> Grid<T, N> {
    fn new(first: NonNull<T>, layout: &Layout) -> Result<Self> {
        let as_array = |dims: &[usize]| {
            <[usize; N]>::try_from(dims)
                .map_err(|_| Error::RankMismatch { expected: N, actual: layout.ndim() })
        };
        Ok(Self { first, sizes: as_array(layout.shape())?, strides: as_array(layout.strides())? })
    }

    #[inline]
    fn get(&self, index: [usize; N]) -> Option<NonNull<T>> {
        let mut offset = 0usize;
        for ((index, size), stride) in index.into_iter().zip(self.sizes).zip(self.strides) {
            if index >= size {
                return None;
            }
            // A later size may be zero: then the offset is meaningless and unused.
            offset = index.wrapping_mul(stride).wrapping_add(offset);
        }
        // SAFETY: the index is below the sizes, so the element is inside the storage (the invariant).
        Some(unsafe { self.first.add(offset) })
    }

    /// # Safety
    ///
    /// `index` is below the sizes.
    #[inline(always)]
    unsafe fn get_unchecked(&self, index: [usize; N]) -> NonNull<T> {
        let offset = index.into_iter().zip(self.strides).map(|(index, stride)| index * stride).sum();
        // SAFETY: guaranteed by the caller, and the invariant.
        unsafe { self.first.add(offset) }
    }
}

/// The elements of a tensor of `N` dimensions, for reading. See [`Tensor::accessor`].
#[derive(Debug)]
pub struct Accessor<'a, T, const N: usize> {
    grid: Grid<T, N>,
    _guard: ReadGuard<'a>,
}

/// The elements of a tensor of `N` dimensions, for reading and writing. See [`Tensor::accessor_mut`].
#[derive(Debug)]
pub struct AccessorMut<'a, T, const N: usize> {
    grid: Grid<T, N>,
    _guard: WriteGuard<'a>,
}

/// A part of an accessor: the elements of a tensor with the first dimensions fixed.
#[derive(Debug)]
pub struct SubAccessor<'a, T, const N: usize> {
    grid: Grid<T, N>,
    elements: PhantomData<&'a T>,
}

/// A part of a mutable accessor.
#[derive(Debug)]
pub struct SubAccessorMut<'a, T, const N: usize> {
    grid: Grid<T, N>,
    elements: PhantomData<&'a mut T>,
}

impl<T: Copy, const N: usize> Clone for SubAccessor<'_, T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Copy, const N: usize> Copy for SubAccessor<'_, T, N> {}

impl Tensor {
    /// Borrows the elements for reading by `N` indices.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::F32)?.view([2, 3])?.t()?;
    /// let elements = tensor.accessor::<f32, 2>()?;
    /// assert_eq!((elements[[2, 1]], elements.get([3, 0])), (5.0, None));
    /// assert_eq!(elements.at(2)?.iter().sum::<f32>(), 7.0);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`], [`Error::RankMismatch`]; [`Error::Borrowed`] during a write; those of
    /// [`Storage::read`](crate::Storage::read).
    #[inline]
    pub fn accessor<T: Plain, const N: usize>(&self) -> Result<Accessor<'_, T, N>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        let (guard, first) = imp.read_first()?;
        Ok(Accessor { grid: Grid::new(first, &imp.layout)?, _guard: guard })
    }

    /// Borrows the elements for reading and writing by `N` indices. A deferred copy is made first.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::accessor`], and [`Error::Borrowed`] during a read; [`Error::ReadOnly`];
    /// [`Error::InternalOverlap`] if elements share memory.
    #[inline]
    pub fn accessor_mut<T: Plain, const N: usize>(&self) -> Result<AccessorMut<'_, T, N>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        imp.check_apart()?;
        let (guard, first) = imp.write_first()?;
        Ok(AccessorMut { grid: Grid::new(first, &imp.layout)?, _guard: guard })
    }
}

/// Implements reading for all four accessors: sizes, strides, elements.
macro_rules! reading {
    ($name:ident) => {
        impl<T: Plain, const N: usize> $name<'_, T, N> {
            /// Returns the sizes.
            #[inline]
            #[must_use]
            pub fn sizes(&self) -> [usize; N] {
                self.grid.sizes
            }

            /// Returns the strides, in elements.
            #[inline]
            #[must_use]
            pub fn strides(&self) -> [usize; N] {
                self.grid.strides
            }

            /// Returns an element, or `None` if the index is out of bounds.
            #[inline]
            #[must_use]
            pub fn get(&self, index: [usize; N]) -> Option<T> {
                // SAFETY: an element inside the storage, which nothing else writes (the guard).
                self.grid.get(index).map(|place| unsafe { place.read() })
            }

            /// Returns an element without a bounds check.
            ///
            /// # Safety
            ///
            /// `index` is below [`sizes`](Self::sizes), each component below its own.
            #[inline(always)]
            #[must_use]
            pub unsafe fn get_unchecked(&self, index: [usize; N]) -> T {
                // SAFETY: guaranteed by the caller.
                let place = unsafe { self.grid.get_unchecked(index) };
                // SAFETY: an element inside the storage, which nothing else writes (the guard).
                unsafe { place.read() }
            }

            /// Iterates over the elements in row-major order.
            pub fn iter(&self) -> Elements<'_, T> {
                // SAFETY: nothing writes the elements while `self` is borrowed.
                unsafe { Elements::new(self.grid.first, &self.grid.sizes, &self.grid.strides) }
            }
        }

        impl<T: Plain, const N: usize> Index<[usize; N]> for $name<'_, T, N> {
            type Output = T;

            /// Returns an element.
            ///
            /// # Panics
            ///
            /// If the index is out of bounds, as slices do.
            #[inline]
            #[track_caller]
            fn index(&self, index: [usize; N]) -> &T {
                match self.grid.get(index) {
                    // SAFETY: an element inside the storage, which nothing writes while `self` is borrowed.
                    Some(place) => unsafe { place.as_ref() },
                    None => out_of_bounds(&index, &self.grid.sizes),
                }
            }
        }
    };
}

/// Implements writing for both mutable accessors.
macro_rules! writing {
    ($name:ident) => {
        impl<T: Plain, const N: usize> $name<'_, T, N> {
            /// Writes an element. Returns `false` if the index is out of bounds.
            #[inline]
            pub fn set(&mut self, index: [usize; N], element: T) -> bool {
                let place = self.grid.get(index);
                if let Some(place) = place {
                    // SAFETY: an element inside the storage, which nothing else accesses (the guard).
                    unsafe { place.write(element) };
                }
                place.is_some()
            }

            /// Returns an element mutably, without a bounds check.
            ///
            /// # Safety
            ///
            /// `index` is below [`sizes`](Self::sizes), each component below its own.
            #[inline(always)]
            pub unsafe fn get_unchecked_mut(&mut self, index: [usize; N]) -> &mut T {
                // SAFETY: guaranteed by the caller.
                let mut place = unsafe { self.grid.get_unchecked(index) };
                // SAFETY: an element inside the storage, which nothing else accesses, and elements do not
                // overlap (`accessor_mut`).
                unsafe { place.as_mut() }
            }

            /// Iterates mutably over the elements in row-major order.
            pub fn iter_mut(&mut self) -> ElementsMut<'_, T> {
                // SAFETY: inside the storage, exclusive while `self` is borrowed, and elements do not overlap
                // (`accessor_mut`).
                unsafe { ElementsMut::new(self.grid.first, &self.grid.sizes, &self.grid.strides) }
            }
        }

        impl<T: Plain, const N: usize> IndexMut<[usize; N]> for $name<'_, T, N> {
            /// Returns an element mutably.
            ///
            /// # Panics
            ///
            /// If the index is out of bounds, as slices do.
            #[inline]
            #[track_caller]
            fn index_mut(&mut self, index: [usize; N]) -> &mut T {
                match self.grid.get(index) {
                    // SAFETY: an element inside the storage, exclusive while `self` is borrowed.
                    Some(mut place) => unsafe { place.as_mut() },
                    None => out_of_bounds(&index, &self.grid.sizes),
                }
            }
        }
    };
}

reading!(Accessor);
reading!(AccessorMut);
reading!(SubAccessor);
reading!(SubAccessorMut);
writing!(AccessorMut);
writing!(SubAccessorMut);

#[cold]
#[track_caller]
fn out_of_bounds(index: &[usize], sizes: &[usize]) -> ! {
    // Indexing may panic; `get` does not.
    panic!("index {index:?} is out of bounds of a tensor of sizes {sizes:?}")
}

/// Implements access to accessors of one dimension fewer.
macro_rules! at {
    ($($n:literal => $rest:literal),+) => {$(
        impl<T: Plain> Grid<T, $n> {
            fn at(&self, index: usize) -> Result<Grid<T, $rest>> {
                let (&size, sizes) = self.sizes.split_first().unwrap_or((&0, &[]));
                let (&stride, strides) = self.strides.split_first().unwrap_or((&0, &[]));
                if index >= size {
                    let index = to_isize(index);
                    return Err(orlop_core::Error::IndexOutOfRange { index, dim: 0, size }.into());
                }
                let (mut rest_sizes, mut rest_strides) = ([0; $rest], [0; $rest]);
                rest_sizes.copy_from_slice(sizes);
                rest_strides.copy_from_slice(strides);
                // Without elements the offset is unused.
                let offset = if sizes.contains(&0) { 0 } else { index * stride };
                // SAFETY: an element with this first index is there: inside the storage.
                let first = unsafe { self.first.add(offset) };
                Ok(Grid { first, sizes: rest_sizes, strides: rest_strides })
            }
        }

        impl<T: Plain> Accessor<'_, T, $n> {
            /// Returns the elements with this first index.
            ///
            /// # Errors
            ///
            /// [`Error::Layout`] if the index is out of bounds.
            pub fn at(&self, index: usize) -> Result<SubAccessor<'_, T, $rest>> {
                Ok(SubAccessor { grid: self.grid.at(index)?, elements: PhantomData })
            }
        }

        impl<'a, T: Plain> SubAccessor<'a, T, $n> {
            /// Returns the elements with this next index.
            ///
            /// # Errors
            ///
            /// [`Error::Layout`] if the index is out of bounds.
            pub fn at(self, index: usize) -> Result<SubAccessor<'a, T, $rest>> {
                Ok(SubAccessor { grid: self.grid.at(index)?, elements: PhantomData })
            }
        }

        impl<T: Plain> AccessorMut<'_, T, $n> {
            /// Returns the elements with this first index, mutably.
            ///
            /// # Errors
            ///
            /// [`Error::Layout`] if the index is out of bounds.
            pub fn at_mut(&mut self, index: usize) -> Result<SubAccessorMut<'_, T, $rest>> {
                Ok(SubAccessorMut { grid: self.grid.at(index)?, elements: PhantomData })
            }
        }

        impl<'a, T: Plain> SubAccessorMut<'a, T, $n> {
            /// Returns the elements with this next index, mutably.
            ///
            /// # Errors
            ///
            /// [`Error::Layout`] if the index is out of bounds.
            pub fn at_mut(self, index: usize) -> Result<SubAccessorMut<'a, T, $rest>> {
                Ok(SubAccessorMut { grid: self.grid.at(index)?, elements: PhantomData })
            }
        }
    )+};
}

at!(8 => 7, 7 => 6, 6 => 5, 5 => 4, 4 => 3, 3 => 2, 2 => 1, 1 => 0);

fn to_isize(index: usize) -> isize {
    isize::try_from(index).unwrap_or(isize::MAX)
}
