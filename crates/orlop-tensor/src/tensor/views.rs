//! Views: other tensors over the same storage, without a copy of elements.
//!
//! [`Layout`] defines what each does to sizes and strides, with PyTorch's rules and errors; here the storage
//! is added. Negative dimensions count from the end.

use super::Tensor;
use crate::error::{Error, Result};
use crate::host;
use orlop_core::{DType, DimInt, Layout, MemoryFormat};

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
        layout.check_within(imp.storage().nbytes(), imp.dtype.size())?;
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

    /// Returns a view of the same elements in the same order with other sizes, one of which may be -1 and is
    /// inferred. Never copies. `view([-1, c])`: `[a, b, c]` → `[a·b, c]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 24.0, 1.0, DType::I32)?.view([2, 3, 4])?;
    /// let rows = tensor.view([-1, 4])?;
    /// assert_eq!((tensor.sizes(), rows.sizes()), (&[2, 3, 4][..], &[6, 4][..]));
    /// assert!(rows.is_alias_of(&tensor));
    /// assert!(rows.t()?.view([24]).is_err(), "the elements are in another order");
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): another number of elements, or strides that need a copy.
    #[inline]
    pub fn view<D: DimInt>(&self, sizes: impl AsRef<[D]>) -> Result<Self> {
        self.with_changed(|layout| layout.view_in_place(sizes.as_ref()))
    }

    /// Returns [`Tensor::view`] if possible, else a row-major copy. `reshape([-1])`: `[n, m]` → `[n·m]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::I32)?.view([2, 3])?;
    /// assert!(tensor.reshape([3, 2])?.is_alias_of(&tensor));
    /// let columns = tensor.t()?.reshape([-1])?;
    /// assert_eq!((tensor.sizes(), columns.sizes()), (&[2, 3][..], &[6][..]));
    /// assert_eq!(columns.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): another number of elements; those of [`Tensor::duplicate`].
    #[inline]
    pub fn reshape<D: DimInt>(&self, sizes: impl AsRef<[D]>) -> Result<Self> {
        let sizes = sizes.as_ref();
        match self.view(sizes) {
            Ok(view) => Ok(view),
            Err(error) => self.copy_instead(error)?.view(sizes),
        }
    }

    /// Merges the dimensions from `start` to `end`, both included; copies if they do not continue each other.
    /// `[a, b, c, d]` → `[a, b·c, d]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): dimensions out of range; those of [`Tensor::duplicate`].
    #[inline]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Self> {
        match self.with_changed(|layout| layout.flatten_in_place(start, end)) {
            Ok(view) => Ok(view),
            Err(error) => self.copy_instead(error)?.flatten(start, end),
        }
    }

    /// Returns a row-major copy, which allows any sizes, if this error of a view says that a copy is needed.
    #[cold]
    #[inline(never)]
    fn copy_instead(&self, error: Error) -> Result<Self> {
        match error {
            Error::Layout(orlop_core::Error::NotViewable { .. }) => {
                self.duplicate_in(MemoryFormat::Contiguous)
            }
            _ => Err(error),
        }
    }

    /// Splits one dimension into several; one size may be -1. `unflatten(1, [b, c])`: `[a, b·c]` → `[a, b,
    /// c]`.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, or sizes that do not multiply to
    /// its size.
    pub fn unflatten<D: DimInt>(&self, dim: isize, sizes: impl AsRef<[D]>) -> Result<Self> {
        self.with_changed(|layout| layout.unflatten_in_place(dim, sizes.as_ref()))
    }

    /// Splits a dimension into pieces of `size` elements; the last one may be smaller. `split(s, 0)`: `[n,
    /// m]` → `[s, m]`, `[s, m]`, …, `[n mod s, m]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let pieces = Tensor::zeros([5, 3], DType::F32)?.split(2, 0)?;
    /// let sizes: Vec<_> = pieces.iter().map(Tensor::sizes).collect();
    /// assert_eq!(sizes, [[2, 3], [2, 3], [1, 3]]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, a size of zero;
    /// [`Error::HostMemory`](crate::Error::HostMemory) if the list of pieces cannot be allocated.
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Self>> {
        self.pieces(self.imp()?.layout.split(size, dim)?)
    }

    /// Splits a dimension into pieces of these sizes. `split_with_sizes([a, b], 1)`: `[n, a + b]` → `[n, a]`,
    /// `[n, b]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let qkv = Tensor::zeros([10, 96], DType::F32)?;
    /// let pieces = qkv.split_with_sizes([64, 16, 16], -1)?;
    /// let sizes: Vec<_> = pieces.iter().map(Tensor::sizes).collect();
    /// assert_eq!(sizes, [[10, 64], [10, 16], [10, 16]]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, or sizes that do not add up to its
    /// size.
    pub fn split_with_sizes<D: DimInt>(&self, sizes: impl AsRef<[D]>, dim: isize) -> Result<Vec<Self>> {
        self.pieces(self.imp()?.layout.split_with_sizes(sizes.as_ref(), dim)?)
    }

    /// Splits a dimension into at most `count` pieces of equal size; the last one may be smaller. `chunk(k,
    /// 0)`: `[n, m]` → `[⌈n / k⌉, m]`, ….
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let pieces = Tensor::zeros([7, 2], DType::F32)?.chunk(3, 0)?;
    /// let sizes: Vec<_> = pieces.iter().map(Tensor::sizes).collect();
    /// assert_eq!(sizes, [[3, 2], [3, 2], [1, 2]]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout): a dimension out of range, a count of zero.
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Vec<Self>> {
        self.pieces(self.imp()?.layout.chunk(count, dim)?)
    }

    /// Returns the same bytes as elements of another type, of the same size, or with a longer or shorter last
    /// dimension. From 4 bytes to 2: `[n, m]` → `[n, 2·m]`; from 2 to 4: `[n, 2·m]` → `[n, m]`.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let words = Tensor::zeros([2, 3], DType::F32)?;
    /// let halves = words.view_dtype(DType::F16)?;
    /// assert_eq!((words.sizes(), halves.sizes()), (&[2, 3][..], &[2, 6][..]));
    /// assert_eq!(halves.view_dtype(DType::F32)?.sizes(), [2, 3]);
    /// assert_eq!(words.view_dtype(DType::I32)?.sizes(), [2, 3]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) if sizes, strides or offset do not divide.
    pub fn view_dtype(&self, dtype: DType) -> Result<Self> {
        let imp = self.imp()?;
        let layout = imp.layout.view_dtype(imp.dtype.size(), dtype.size())?;
        Ok(Self::new(imp.storage().clone(), layout, dtype))
    }

    /// Returns a handle for each layout. An expanded dimension can have more of them than memory allows.
    fn pieces(&self, layouts: impl ExactSizeIterator<Item = Layout>) -> Result<Vec<Self>> {
        let mut pieces = host::room(layouts.len())?;
        for layout in layouts {
            pieces.push(self.with_layout(layout)?);
        }
        Ok(pieces)
    }
}
