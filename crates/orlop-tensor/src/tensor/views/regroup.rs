//! The same elements with other sizes, or the same bytes as another dtype.

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use orlop_core::{DType, DimInt, MemoryFormat};

impl Tensor {
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
}
