//! Views of some of the elements.

use crate::error::Result;
use crate::tensor::Tensor;
use orlop_core::DimInt;

impl Tensor {
    /// Returns elements `start..end` of a dimension, every `step`th. Negative bounds count from the end, and
    /// bounds out of range are clamped. `[…, n, …]` → `[…, ⌈(end − start) / step⌉, …]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 10.0, 1.0, DType::I32)?;
    /// assert_eq!(tensor.slice(0, Some(1), Some(-1), 3)?.to_vec::<i32>()?, [1, 4, 7]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, a step of zero.
    #[inline]
    pub fn slice(&self, dim: isize, start: Option<isize>, end: Option<isize>, step: usize) -> Result<Self> {
        self.with_changed(|layout| layout.slice_in_place(dim, start, end, step))
    }

    /// Returns `length` elements of a dimension from `start`. `[…, n, …]` → `[…, length, …]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension or range out of bounds.
    #[inline]
    pub fn narrow(&self, dim: isize, start: isize, length: usize) -> Result<Self> {
        self.with_changed(|layout| layout.narrow_in_place(dim, start, length))
    }

    /// Selects an index of a dimension and removes the dimension. `[…, n, …]` → `[…, …]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension or index out of range.
    #[inline]
    pub fn select(&self, dim: isize, index: isize) -> Result<Self> {
        self.with_changed(|layout| layout.select_in_place(dim, index))
    }

    /// Returns a view with any sizes and strides over the storage, from element `storage_offset`, or from
    /// this tensor's offset. `as_strided([n, m], [s, t], _)`: `[…]` → `[n, m]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let row = Tensor::arange(0.0, 6.0, 1.0, DType::I32)?;
    /// // Windows of three, one apart: `[6]` → `[4, 3]`.
    /// let windows = row.as_strided([4, 3], [1, 1], None)?;
    /// assert_eq!((row.sizes(), windows.sizes()), (&[6][..], &[4, 3][..]));
    /// assert_eq!(windows.select(0, 1)?.to_vec::<i32>()?, [1, 2, 3]);
    /// assert!(row.as_strided([4, 3], [2, 1], None).is_err(), "elements outside");
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage) if an element would be outside; negative numbers.
    pub fn as_strided<S: DimInt, T: DimInt>(
        &self,
        sizes: impl AsRef<[S]>,
        strides: impl AsRef<[T]>,
        storage_offset: Option<isize>,
    ) -> Result<Self> {
        let imp = self.imp()?;
        let layout = imp.layout.as_strided(sizes.as_ref(), strides.as_ref(), storage_offset)?;
        // The only view that may exceed the storage.
        imp.storage().check_bytes(&layout, imp.dtype)?;
        self.with_layout(layout)
    }

    /// Returns the diagonal of two dimensions, `offset` above the main one, as a new last dimension. `[…, n,
    /// …, m, …]` → `[…, …, d]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): dimensions out of range, or the same twice.
    pub fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Self> {
        self.with_layout(self.imp()?.layout.diagonal(offset, dim1, dim2)?)
    }

    /// Returns the windows of `size` elements, `step` apart, along a dimension; the elements of a window are
    /// a new last dimension. `[…, n, …]` → `[…, (n − size) / step + 1, …, size]`. With a step smaller than
    /// the size, elements share memory.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, a step of zero, a window that does
    /// not fit.
    pub fn unfold(&self, dim: isize, size: usize, step: usize) -> Result<Self> {
        self.with_layout(self.imp()?.layout.unfold(dim, size, step)?)
    }
}
