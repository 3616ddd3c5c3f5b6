//! [`Shape`]: the sizes of a tensor's dimensions.
//!
//! A [`Shape`] is checked once, when it is created. After that its number of elements is known to fit.

use crate::{
    DimInt, Error, Quantity, Result, bytes, dim_int::to_dim, dims::Dims, dims_newtype::dims_newtype,
};

/// The sizes of a tensor, outermost dimension first; up to five are stored inline.
///
/// No size is negative, and the number of elements is at most [`bytes::MAX_BYTES`]. A shape without
/// dimensions is that of a scalar, with one element.
///
/// ```
/// use orlop_core::Shape;
///
/// let shape = Shape::new(&[2, 3, 4])?;
/// assert_eq!((shape.ndim(), shape.numel()), (3, 24));
/// assert_eq!(Shape::new(&[i64::MAX, 0])?.numel(), 0);
/// assert!(Shape::new(&[2, -1]).is_err());
/// assert!(Shape::new(&[i64::MAX, 2]).is_err());
/// # Ok::<(), orlop_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Shape(Dims);

dims_newtype!(Shape);

impl Shape {
    /// Creates a shape.
    ///
    /// # Errors
    /// [`Error::NegativeSize`], or [`Error::Overflow`] if the number of elements does not fit. If any size is
    /// 0, the number of elements is 0 and always fits.
    #[inline]
    pub fn new<D: DimInt>(sizes: &[D]) -> Result<Self> {
        let dims = Dims::try_from_fn(sizes.len(), |dim| Self::size(sizes[dim], dim))?;
        bytes::numel(dims.padded())?;
        Ok(Self(dims))
    }

    /// Checks `size` as the size of dimension `dim`.
    #[inline]
    pub(crate) fn size<D: DimInt>(size: D, dim: usize) -> Result<usize> {
        to_dim(size, Quantity::ElementCount, |size| Error::NegativeSize { dim, size })
    }

    /// Creates the shape of a scalar: no dimensions, one element.
    #[must_use]
    pub fn scalar() -> Self {
        Self(Dims::zeros(0))
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> usize {
        // Checked in `new`: the product fits unless a size is 0, and then wrapping leaves it at 0.
        self.0.wrapping_product()
    }

    /// Returns the number of bytes that the elements take without gaps.
    ///
    /// # Errors
    /// [`Error::Overflow`] above [`bytes::MAX_BYTES`].
    #[inline]
    pub fn checked_bytes(&self, itemsize: usize) -> Result<usize> {
        bytes::checked_bytes(self.numel(), itemsize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn takes_the_integers_people_have() {
        let from_literals = Shape::new(&[2, 3]).unwrap();
        assert_eq!(from_literals, Shape::new(&[2i64, 3]).unwrap());
        assert_eq!(from_literals, Shape::new(&[2usize, 3]).unwrap());
        assert_eq!(from_literals, [2, 3]);
        assert_eq!(from_literals.to_string(), "[2, 3]");
    }

    #[test]
    fn refusals() {
        assert_eq!(Shape::new(&[4, -2]).unwrap_err(), Error::NegativeSize { dim: 1, size: -2 });
        let overflow = Error::Overflow { quantity: Quantity::ElementCount };
        assert_eq!(Shape::new(&[usize::MAX]).unwrap_err(), overflow);
        assert_eq!(Shape::new(&[1i64 << 40, 1 << 40]).unwrap_err(), overflow);
        assert_eq!(
            Shape::new(&[i64::MAX]).unwrap().checked_bytes(2).unwrap_err(),
            Error::Overflow { quantity: Quantity::ByteCount }
        );
    }

    #[test]
    fn no_elements_and_one() {
        assert_eq!(Shape::new(&[1i64 << 40, 1 << 40, 0, 1 << 40]).unwrap().numel(), 0);
        assert_eq!(Shape::scalar().numel(), 1);
        assert_eq!(Shape::scalar(), []);
    }

    #[test]
    fn many_dimensions() {
        let sizes = [1, 2, 1, 3, 1, 4, 1];
        let shape = Shape::new(&sizes).unwrap();
        assert_eq!((shape.ndim(), shape.numel()), (7, 24));
        assert_eq!(shape.clone(), shape);
    }
}
