//! Views with reordered, removed, added or repeated dimensions.

use crate::error::Result;
use crate::tensor::Tensor;
use orlop_core::DimInt;

impl Tensor {
    /// Swaps two dimensions. `[…, n, …, m, …]` → `[…, m, …, n, …]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): dimensions out of range.
    #[inline]
    pub fn transpose(&self, dim0: isize, dim1: isize) -> Result<Self> {
        self.with_changed(|layout| layout.transpose_in_place(dim0, dim1))
    }

    /// Reorders the dimensions. `permute([2, 0, 1])`: `[a, b, c]` → `[c, a, b]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) unless each dimension is listed once.
    #[inline]
    pub fn permute(&self, dims: impl AsRef<[isize]>) -> Result<Self> {
        self.with_changed(|layout| layout.permute_in_place(dims.as_ref()))
    }

    /// Transposes a matrix. `[n, m]` → `[m, n]`; tensors with fewer dimensions stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) for more than two dimensions.
    #[inline]
    pub fn t(&self) -> Result<Self> {
        self.with_changed(|layout| layout.t_in_place())
    }

    /// Moves dimensions to other positions; the others keep their order. `movedim([0], [2])`: `[a, b, c]` →
    /// `[b, c, a]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): dimensions out of range, duplicates, lists of different
    /// lengths.
    pub fn movedim(&self, source: impl AsRef<[isize]>, destination: impl AsRef<[isize]>) -> Result<Self> {
        self.with_changed(|layout| layout.movedim_in_place(source.as_ref(), destination.as_ref()))
    }

    /// Removes all dimensions of size 1. `[1, n, 1, m]` → `[n, m]`.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined).
    pub fn squeeze(&self) -> Result<Self> {
        self.with_changed(|layout| {
            layout.squeeze_in_place();
            Ok(())
        })
    }

    /// Removes this dimension if its size is 1. `[n, 1, m]` → `[n, m]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range.
    #[inline]
    pub fn squeeze_dim(&self, dim: isize) -> Result<Self> {
        self.with_changed(|layout| layout.squeeze_dim_in_place(dim))
    }

    /// Removes those of these dimensions whose size is 1. `squeeze_dims([0, 2])`: `[1, n, m, 1]` → `[n, m,
    /// 1]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::zeros([1, 2, 3, 1], DType::F32)?;
    /// assert_eq!(tensor.squeeze_dims([0, 2])?.sizes(), [2, 3, 1]);
    /// assert_eq!(tensor.squeeze_dims([0, -1])?.sizes(), [2, 3]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): dimensions out of range, or duplicates.
    pub fn squeeze_dims(&self, dims: impl AsRef<[isize]>) -> Result<Self> {
        self.with_changed(|layout| layout.squeeze_dims_in_place(dims.as_ref()))
    }

    /// Inserts a dimension of size 1. `unsqueeze(1)`: `[n, m]` → `[n, 1, m]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range.
    #[inline]
    pub fn unsqueeze(&self, dim: isize) -> Result<Self> {
        self.with_changed(|layout| layout.unsqueeze_in_place(dim))
    }

    /// Repeats dimensions of size 1 with stride 0, and adds dimensions before them; -1 keeps a size. `[n, 1]`
    /// → `[k, n, m]`. Elements share memory: writing through the result is an error.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) if a size other than 1 would change.
    #[inline]
    pub fn expand<D: DimInt>(&self, sizes: impl AsRef<[D]>) -> Result<Self> {
        self.with_changed(|layout| layout.expand_in_place(sizes.as_ref()))
    }

    /// [`Tensor::expand`] to these sizes, under NumPy's name. `[n, 1]` → `[k, n, m]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let column = Tensor::zeros([3, 1], DType::F32)?;
    /// let all = column.broadcast_to([2, 3, 4])?;
    /// assert_eq!((column.sizes(), all.sizes()), (&[3, 1][..], &[2, 3, 4][..]));
    /// assert_eq!(all.strides()[..], [0, 1, 0]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::expand`].
    pub fn broadcast_to<D: DimInt>(&self, sizes: impl AsRef<[D]>) -> Result<Self> {
        self.expand(sizes)
    }
}
