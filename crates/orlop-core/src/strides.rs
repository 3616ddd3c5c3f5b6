//! [`Strides`]: the distance between neighbours along each dimension, in elements.
//!
//! Strides are never negative: orlop has no reversed views, so the first element of a layout has its lowest
//! position. The stride of a dimension of size 0 or 1 has no effect; it is kept because PyTorch keeps it, and
//! no rule checks it.

use crate::{
    DimInt, Error, Quantity, Result, Shape, bytes::MAX_BYTES, dim_int::to_dim, dims::Dims,
    dims_newtype::dims_newtype,
};

/// The strides of a tensor in elements, outermost dimension first; up to five are stored inline.
#[derive(Clone)]
pub struct Strides(Dims);

dims_newtype!(Strides);

impl Strides {
    /// Creates strides.
    ///
    /// # Errors
    /// [`Error::NegativeStride`], or [`Error::Overflow`] above [`MAX_BYTES`].
    #[inline]
    pub fn new<D: DimInt>(strides: &[D]) -> Result<Self> {
        Dims::try_from_fn(strides.len(), |dim| {
            to_dim(strides[dim], Quantity::Stride, |stride| Error::NegativeStride { dim, stride })
        })
        .map(Self)
    }

    /// Creates strides for tensors of this shape, from foreign code.
    ///
    /// Unlike [`new`](Self::new), this accepts a negative stride along a dimension of size 0 or 1 (NumPy
    /// makes them by reversing); it becomes 1.
    ///
    /// ```
    /// use orlop_core::{Shape, Strides};
    ///
    /// let shape = Shape::new(&[1, 4])?;
    /// assert_eq!(Strides::for_shape(&shape, &[-4, 1])?, [1, 1]);
    /// assert!(Strides::for_shape(&shape, &[4, -1]).is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::RankMismatch`], [`Error::NegativeStride`], or [`Error::Overflow`] above [`MAX_BYTES`].
    pub fn for_shape<D: DimInt>(shape: &Shape, strides: &[D]) -> Result<Self> {
        if strides.len() != shape.ndim() {
            return Err(Error::RankMismatch { sizes: shape.ndim(), strides: strides.len() });
        }
        Dims::try_from_fn(strides.len(), |dim| {
            let checked =
                to_dim(strides[dim], Quantity::Stride, |stride| Error::NegativeStride { dim, stride });
            match checked {
                Err(Error::NegativeStride { .. }) if shape[dim] <= 1 => Ok(1),
                _ => checked,
            }
        })
        .map(Self)
    }

    /// Returns row-major strides: the last dimension is the fastest. Sizes of 0 count as 1, as in PyTorch.
    ///
    /// ```
    /// use orlop_core::{Shape, Strides};
    ///
    /// assert_eq!(Strides::contiguous(&Shape::new(&[2, 3, 4])?), [12, 4, 1]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn contiguous(shape: &Shape) -> Self {
        Self(shape.dims().row_major(|stride, size| next_stride(stride, size.max(1))))
    }

    /// Returns strides for the dimensions in `order`, fastest first; each stride is `next(stride, size)` of
    /// the previous one. `order` contains each dimension of `shape` once.
    pub(crate) fn in_order(
        shape: &Shape,
        order: impl IntoIterator<Item = usize>,
        next: impl Fn(usize, usize) -> usize,
    ) -> Self {
        let mut strides = Dims::zeros(shape.ndim());
        let mut stride = 1;
        for dim in order {
            strides.as_mut_slice()[dim] = stride;
            stride = next(stride, shape[dim]);
        }
        Self(strides)
    }
}

/// Returns the stride of the next slower dimension. It can only overflow if the shape has no elements; it
/// then saturates and is never used.
#[inline]
pub(crate) fn next_stride(stride: usize, size: usize) -> usize {
    stride.saturating_mul(size).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides() {
        let strides = |sizes: &[usize]| Strides::contiguous(&Shape::new(sizes).unwrap());
        assert_eq!(strides(&[]), []);
        assert_eq!(strides(&[5]), [1]);
        assert_eq!(strides(&[2, 0, 3]), [3, 3, 1]);
        assert_eq!(strides(&[2, 1, 3, 1, 2, 2]), [12, 12, 4, 4, 2, 1]);
        assert_eq!(strides(&[0, MAX_BYTES, 3]), [MAX_BYTES, 3, 1]);
    }

    #[test]
    fn refusals() {
        assert_eq!(Strides::new(&[1, -1]).unwrap_err(), Error::NegativeStride { dim: 1, stride: -1 });
        assert_eq!(Strides::new(&[u64::MAX]).unwrap_err(), Error::Overflow { quantity: Quantity::Stride });
        let shape = Shape::new(&[2, 2]).unwrap();
        assert_eq!(
            Strides::for_shape(&shape, &[1]).unwrap_err(),
            Error::RankMismatch { sizes: 2, strides: 1 }
        );
    }
}
