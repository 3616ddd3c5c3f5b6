//! Splits of a dimension into several tensors.

use crate::error::Result;
use crate::host;
use crate::tensor::Tensor;
use orlop_core::{DimInt, Layout};

impl Tensor {
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

    /// Returns a handle for each layout. An expanded dimension can have more of them than memory allows.
    fn pieces(&self, layouts: impl ExactSizeIterator<Item = Layout>) -> Result<Vec<Self>> {
        let mut pieces = host::room(layouts.len())?;
        for layout in layouts {
            pieces.push(self.with_layout(layout)?);
        }
        Ok(pieces)
    }
}
