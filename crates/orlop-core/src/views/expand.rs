//! Broadcasting: dimensions of size 1 that repeat with stride 0, without a copy.
//!
//! New dimensions of size 1 get the strides that PyTorch gives them, although they have no effect.

use crate::{DimInt, Error, Layout, Result, Shape, Strides, bytes, dims::Dims, strides::next_stride};

impl Layout {
    /// Expands dimensions of size 1 to these sizes with strides of 0; -1 keeps a size. New dimensions come
    /// first.
    ///
    /// `[1, n]` becomes `[a, m, n]` for the sizes `[a, m, n]` and for `[a, m, -1]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let column = Layout::contiguous(Shape::new(&[3, 1])?);
    /// let wide = column.expand(&[2, -1, 4])?;
    /// assert_eq!((wide.shape().as_slice(), wide.strides().as_slice()), (&[2, 3, 4][..], &[0, 1, 0][..]));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooFewSizes`], [`Error::NotExpandable`] for a size other than 1 that would change,
    /// [`Error::NothingToKeep`] for -1 in place of a new dimension, [`Error::NegativeSize`],
    /// [`Error::Overflow`] if the number of elements does not fit.
    #[inline]
    pub fn expand<D: DimInt>(&self, sizes: &[D]) -> Result<Self> {
        let mut expanded = self.clone();
        expanded.expand_in_place(sizes)?;
        Ok(expanded)
    }

    /// Applies [`expand`](Self::expand) in place.
    ///
    /// # Errors
    /// Those of [`expand`](Self::expand); `self` is then unchanged.
    #[inline(always)]
    pub fn expand_in_place<D: DimInt>(&mut self, sizes: &[D]) -> Result<()> {
        let Some(new) = sizes.len().checked_sub(self.ndim()) else {
            return Err(Error::TooFewSizes { sizes: sizes.len(), ndim: self.ndim() });
        };
        // The stride that continues the next inner dimension; for the first dimension of a former scalar, 0.
        let mut next = 0;
        let (shape, strides) = Dims::pair_from_last(sizes.len(), |dim| {
            let old = dim.checked_sub(new).map(|old| (self.shape()[old], self.strides()[old]));
            let (size, stride) = old.unwrap_or((1, next));
            let to = match (old, sizes[dim].to_i64()) {
                (Some(_), Some(-1)) => size,
                (None, Some(-1)) => return Err(Error::NothingToKeep { dim }),
                _ => Shape::size(sizes[dim], dim)?,
            };
            let stride = match size {
                _ if size == to => stride,
                1 => 0,
                _ => return Err(Error::NotExpandable { dim, size, to }),
            };
            next = next_stride(stride, to);
            Ok((to, stride))
        })?;
        let numel = bytes::numel(shape.padded())?;
        self.repeat(Shape::from_dims(shape), Strides::from_dims(strides), numel);
        Ok(())
    }

    /// Expands to the sizes of another tensor; the same as [`expand`](Self::expand), under PyTorch's name.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape, broadcast_shapes};
    ///
    /// let (a, b) = (Shape::new(&[3, 1])?, Shape::new(&[4])?);
    /// let common = broadcast_shapes(&a, &b)?;
    /// assert_eq!(Layout::contiguous(b).broadcast_to(&common)?.strides(), &[0, 1]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`expand`](Self::expand).
    pub fn broadcast_to<D: DimInt>(&self, sizes: &[D]) -> Result<Self> {
        self.expand(sizes)
    }
}

/// Returns the common shape of two broadcast operands: the shapes are aligned at the last dimension, equal
/// sizes stay, and 1 becomes the other size.
///
/// ```
/// use orlop_core::{Shape, broadcast_shapes};
///
/// assert_eq!(broadcast_shapes(&Shape::new(&[3, 1])?, &Shape::new(&[2, 1, 4])?)?, [2, 3, 4]);
/// assert_eq!(broadcast_shapes(&Shape::new(&[1])?, &Shape::new(&[0])?)?, [0]);
/// assert!(broadcast_shapes(&Shape::new(&[3])?, &Shape::new(&[4])?).is_err());
/// # Ok::<(), orlop_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotBroadcastable`], [`Error::Overflow`] if the number of elements does not fit.
pub fn broadcast_shapes(a: &Shape, b: &Shape) -> Result<Shape> {
    let ndim = a.ndim().max(b.ndim());
    let sizes = Dims::try_from_fn(ndim, |dim| {
        let size = |shape: &Shape| (dim + shape.ndim()).checked_sub(ndim).map_or(1, |dim| shape[dim]);
        match (size(a), size(b)) {
            (1, size) | (size, 1) => Ok(size),
            (a, b) if a == b => Ok(a),
            (a, b) => Err(Error::NotBroadcastable { dim, a, b }),
        }
    })?;
    Shape::new(sizes.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quantity, bytes::MAX_BYTES};

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(sizes).unwrap())
    }

    #[test]
    fn new_dimensions() {
        assert_eq!(layout(&[3]).expand(&[1, 1, 3]).unwrap().strides(), &[3, 3, 1]);
        assert_eq!(layout(&[1]).expand(&[1, 2]).unwrap().strides(), &[0, 0]);
        assert_eq!(layout(&[]).expand(&[1, 1]).unwrap().strides(), &[0, 0]);
        assert_eq!(layout(&[]).expand(&[0; 0]).unwrap(), layout(&[]));
        assert_eq!(layout(&[1]).expand(&[1]).unwrap().strides(), &[1]);
    }

    #[test]
    fn to_nothing() {
        let nothing = layout(&[2, 1]).expand(&[2, 0]).unwrap();
        assert_eq!((nothing.strides().as_slice(), nothing.element_range()), (&[1, 0][..], 0..0));
    }

    #[test]
    fn refusals() {
        let column = layout(&[3, 1]);
        assert_eq!(column.expand(&[3]), Err(Error::TooFewSizes { sizes: 1, ndim: 2 }));
        assert_eq!(column.expand(&[2, 4, 1]), Err(Error::NotExpandable { dim: 1, size: 3, to: 4 }));
        assert_eq!(column.expand(&[-1, 3, 1]), Err(Error::NothingToKeep { dim: 0 }));
        assert_eq!(column.expand(&[3, -2]), Err(Error::NegativeSize { dim: 1, size: -2 }));
        let overflow = Err(Error::Overflow { quantity: Quantity::ElementCount });
        assert_eq!(column.expand(&[3, MAX_BYTES]), overflow);
        assert_eq!(column.expand(&[3, usize::MAX]), overflow);
    }

    #[test]
    fn shapes_together() {
        let of =
            |a: &[usize], b: &[usize]| broadcast_shapes(&Shape::new(a).unwrap(), &Shape::new(b).unwrap());
        assert_eq!(of(&[], &[2, 3]).unwrap(), [2, 3]);
        assert_eq!(of(&[0, 1], &[1, 5]).unwrap(), [0, 5]);
        assert_eq!(of(&[2, 3], &[4, 3]), Err(Error::NotBroadcastable { dim: 0, a: 2, b: 4 }));
        assert_eq!(of(&[2, 0], &[2]), Err(Error::NotBroadcastable { dim: 1, a: 0, b: 2 }));
        let overflow = Error::Overflow { quantity: Quantity::ElementCount };
        assert_eq!(of(&[MAX_BYTES, 1], &[2]), Err(overflow));
    }
}
