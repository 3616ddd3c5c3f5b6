//! [`ElementTensor`]: tensors of elements with constructors and destructors.

use crate::error::{Error, Result};
use crate::tensor::Offsets;
use crate::{IntoShape, TensorOptions};
use orlop_alloc::{SharedElements, TypedBlock};
use orlop_core::{DimInt, Layout, MemoryKind, Shape};
use std::fmt;

/// A view of shared elements of any type, such as strings: what [`Tensor`](crate::Tensor) is for numbers. The
/// memory comes from a context, and is counted under its kind; elements are constructed and dropped once.
///
/// Views and clones share the elements, which are read through them. They can be changed while there is one
/// handle.
///
/// ```
/// use orlop_core::MemoryKind;
/// use orlop_tensor::{ElementTensor, TensorOptions};
///
/// let options = TensorOptions::new().kind(MemoryKind::Workspace);
/// let labels = ElementTensor::from_fn([2, 3], options, |index| format!("label {index}"))?;
/// let column = labels.select(1, 2)?;
/// drop(labels);
/// assert_eq!(column.iter().collect::<Vec<_>>(), ["label 2", "label 5"]);
/// assert_eq!((column.sizes(), column.memory_kind()), (&[2][..], MemoryKind::Workspace));
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
pub struct ElementTensor<T> {
    elements: SharedElements<T>,
    /// Invariant: all of its elements are inside.
    layout: Layout,
}

impl<T> ElementTensor<T> {
    /// Creates a row-major tensor; `make(index)` constructs the elements in that order. Of the options, the
    /// dtype and the format have no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] for invalid sizes; [`Error::Alloc`] if the allocation fails, or the memory cannot be
    /// accessed by the host.
    pub fn from_fn<'a>(
        shape: impl IntoShape,
        options: impl Into<TensorOptions<'a>>,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<Self> {
        Self::try_from_fn(shape, options, |index| Ok(make(index)))
    }

    /// [`ElementTensor::from_fn`] with a constructor that can fail. At the first error the elements
    /// constructed so far are dropped.
    ///
    /// # Errors
    ///
    /// The error of `make`, and those of [`ElementTensor::from_fn`].
    pub fn try_from_fn<'a>(
        shape: impl IntoShape,
        options: impl Into<TensorOptions<'a>>,
        make: impl FnMut(usize) -> Result<T>,
    ) -> Result<Self> {
        let (shape, options) = (shape.into_shape()?, options.into());
        let count = shape.numel();
        let mut memory = options.memory;
        let request = TypedBlock::<T>::request_for(&memory.request, count)?;
        memory.align_chosen |= request.align > memory.request.align;
        memory.request.align = request.align;
        // A new block has one owner.
        let block = memory.allocate(request.bytes)?.try_into_block().map_err(|_| Error::MemoryInUse)?;
        let elements = TypedBlock::try_in_block(block, count, make)?.share();
        Ok(Self { elements, layout: Layout::contiguous(shape) })
    }

    /// Moves the elements of a vector to a row-major tensor.
    ///
    /// # Errors
    ///
    /// [`Error::CountMismatch`]; those of [`ElementTensor::from_fn`].
    pub fn from_vec<'a>(
        shape: impl IntoShape,
        options: impl Into<TensorOptions<'a>>,
        elements: Vec<T>,
    ) -> Result<Self> {
        let shape = shape.into_shape()?;
        let (expected, actual) = (shape.numel(), elements.len());
        let mut elements = elements.into_iter();
        let wrong = || Error::CountMismatch { expected, actual };
        if expected != actual {
            return Err(wrong());
        }
        Self::try_from_fn(shape, options, |_| elements.next().ok_or_else(wrong))
    }

    /// Creates a tensor over shared elements.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage), in elements, if one is outside.
    pub fn from_elements(elements: SharedElements<T>, layout: Layout) -> Result<Self> {
        layout.check_within(elements.len(), 1)?;
        Ok(Self { elements, layout })
    }

    /// Returns the sizes, strides and offset, in elements.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the sizes.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Returns the sizes as a slice.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// Returns the memory kind.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.elements.kind()
    }

    /// Returns the shared elements, also those outside of the view.
    #[must_use]
    pub fn elements(&self) -> &SharedElements<T> {
        &self.elements
    }

    /// Returns the element at an index. `None` if there is none.
    #[must_use]
    pub fn get(&self, index: &[usize]) -> Option<&T> {
        self.elements.get(self.place(index)?)
    }

    /// Returns the element at an index for changes. `None` if there is none, or if the elements have other
    /// handles.
    #[must_use]
    pub fn get_mut(&mut self, index: &[usize]) -> Option<&mut T> {
        let place = self.place(index)?;
        self.elements.get_mut()?.get_mut(place)
    }

    fn place(&self, index: &[usize]) -> Option<usize> {
        let (sizes, strides) = (self.layout.shape(), self.layout.strides());
        if index.len() != sizes.len() || index.iter().zip(sizes.iter()).any(|(index, size)| index >= size) {
            return None;
        }
        // Inside the layout, whose extent fits.
        Some(
            self.layout.offset()
                + index.iter().zip(strides.iter()).map(|(index, stride)| index * stride).sum::<usize>(),
        )
    }

    /// Iterates over the elements in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut offsets = Offsets::new(self.layout.shape(), self.layout.strides());
        std::iter::from_fn(move || self.elements.get(self.layout.offset() + offsets.next()?))
    }

    /// Returns a view with another layout, of elements of this one.
    fn with_layout(&self, layout: Layout) -> Self {
        Self { elements: self.elements.clone(), layout }
    }

    /// Returns the part `start .. start + length` of a dimension: see
    /// [`Tensor::narrow`](crate::Tensor::narrow).
    ///
    /// # Errors
    ///
    /// [`Error::Layout`].
    pub fn narrow(&self, dim: isize, start: isize, length: usize) -> Result<Self> {
        Ok(self.with_layout(self.layout.narrow(dim, start, length)?))
    }

    /// Returns one index of a dimension, which is removed: see [`Tensor::select`](crate::Tensor::select).
    ///
    /// # Errors
    ///
    /// [`Error::Layout`].
    pub fn select(&self, dim: isize, index: isize) -> Result<Self> {
        Ok(self.with_layout(self.layout.select(dim, index)?))
    }

    /// Returns the dimensions in another order.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`].
    pub fn permute(&self, dims: &[isize]) -> Result<Self> {
        Ok(self.with_layout(self.layout.permute(dims)?))
    }

    /// Returns the elements with other sizes, which the strides must allow.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`].
    pub fn view<D: DimInt>(&self, sizes: &[D]) -> Result<Self> {
        Ok(self.with_layout(self.layout.view(sizes)?))
    }
}

impl<T> Clone for ElementTensor<T> {
    fn clone(&self) -> Self {
        self.with_layout(self.layout.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for ElementTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElementTensor")
            .field("sizes", &self.sizes())
            .field("elements", &self.iter().collect::<Vec<_>>())
            .finish()
    }
}
