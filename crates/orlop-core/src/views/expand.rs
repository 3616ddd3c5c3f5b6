//! Broadcasting: dimensions of size 1 read over and over.
//!
//! A stride of 0 makes one element many without a copy. The strides of dimensions that are new but of size 1 lead
//! nowhere; they are those of PyTorch all the same.

use crate::{DimInt, Error, Layout, Result, Shape, Strides, bytes, dims::Dims, strides::next_stride};

impl Layout {
    /// Dimensions of size 1 stretched to these sizes by strides of 0; -1 keeps a size. New dimensions come first.
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
    /// [`Error::NothingToKeep`] for -1 in front of the dimensions there are, [`Error::NegativeSize`],
    /// [`Error::Overflow`] for more elements than can be counted.
    #[inline]
    pub fn expand<D: DimInt>(&self, sizes: &[D]) -> Result<Self> {
        let mut expanded = self.clone();
        expanded.expand_in_place(sizes)?;
        Ok(expanded)
    }

    /// [`expand`](Self::expand) of a copy that was made already.
    ///
    /// # Errors
    /// Those of [`expand`](Self::expand); nothing has changed then.
    #[inline(always)]
    pub fn expand_in_place<D: DimInt>(&mut self, sizes: &[D]) -> Result<()> {
        let Some(new) = sizes.len().checked_sub(self.ndim()) else {
            return Err(Error::TooFewSizes { sizes: sizes.len(), ndim: self.ndim() });
        };
        // As far as the dimension before reaches; the first one of what was a scalar gets 0.
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

    /// [`expand`](Self::expand), as PyTorch calls it where the sizes are those of another tensor.
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

/// The shape that an operation on tensors of these two shapes has: aligned at the last dimension, equal sizes stay and
/// 1 yields to the other.
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
/// [`Error::NotBroadcastable`], [`Error::Overflow`] for more elements than can be counted.
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
