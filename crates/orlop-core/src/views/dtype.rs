//! Views of the same bytes with another element size.
//!
//! The last dimension grows or shrinks by the ratio of the sizes, and everything else is counted in the new
//! elements. The last dimension must have stride 1, and for larger elements every number must divide.

use crate::{Error, Layout, LayoutPart, Quantity, Result, Shape, Strides, dims::Dims, strides::next_stride};

impl Layout {
    /// Returns the view of the same bytes as elements of `to_itemsize` bytes; the present ones have
    /// `from_itemsize`.
    ///
    /// `[.., n]` becomes `[.., n · from / to]`. Equal sizes change nothing, whatever the strides.
    ///
    /// ```
    /// use orlop_core::{DType, Layout, Shape};
    ///
    /// let floats = Layout::contiguous(Shape::new(&[2, 6])?);
    /// let bytes = floats.view_dtype(DType::F32.size(), DType::U8.size())?;
    /// assert_eq!((bytes.shape().as_slice(), bytes.strides().as_slice()), (&[2, 24][..], &[24, 1][..]));
    /// assert_eq!(floats.view_dtype(DType::F32.size(), DType::F64.size())?.shape(), &[2, 3]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ItemsizeRatio`]; [`Error::NoDimensions`] for a scalar under another element size,
    /// [`Error::LastStride`], [`Error::Indivisible`], [`Error::Overflow`].
    pub fn view_dtype(&self, from_itemsize: usize, to_itemsize: usize) -> Result<Self> {
        let (from, to) = (from_itemsize, to_itemsize);
        if from == to {
            return Ok(self.clone());
        }
        let last = self.ndim().checked_sub(1).ok_or(Error::NoDimensions)?;
        match self.strides()[last] {
            1 => {}
            stride => return Err(Error::LastStride { stride }),
        }
        match (from.checked_rem(to), to.checked_rem(from)) {
            (Some(0), Some(_)) => self.smaller_elements(last, from / to),
            (Some(_), Some(0)) => self.larger_elements(last, to / from),
            _ => Err(Error::ItemsizeRatio { from, to }),
        }
    }

    /// Splits each element into `ratio` smaller ones.
    fn smaller_elements(&self, last: usize, ratio: usize) -> Result<Self> {
        let times = |value: usize, quantity| value.checked_mul(ratio).ok_or(Error::Overflow { quantity });
        let sizes = Dims::try_from_fn(self.ndim(), |dim| match self.shape()[dim] {
            size if dim == last => times(size, Quantity::ElementCount),
            size => Ok(size),
        })?;
        // The stride of a dimension of size 2 or more overflows only if the layout as a whole does.
        let strides =
            Dims::from_fn(
                self.ndim(),
                |dim| {
                    if dim == last { 1 } else { next_stride(self.strides()[dim], ratio) }
                },
            );
        let offset = times(self.offset(), Quantity::ElementSpan)?;
        Self::new(Shape::new(sizes.as_slice())?, Strides::from_dims(strides), offset)
    }

    /// Joins each `ratio` elements into one.
    fn larger_elements(&self, last: usize, ratio: usize) -> Result<Self> {
        let divide = |value: usize, part: LayoutPart| match value % ratio {
            0 => Ok(value / ratio),
            _ => Err(Error::Indivisible { part, value, by: ratio }),
        };
        let sizes = Dims::try_from_fn(self.ndim(), |dim| match self.shape()[dim] {
            size if dim == last => divide(size, LayoutPart::Size(dim)),
            size => Ok(size),
        })?;
        let offset = divide(self.offset(), LayoutPart::Offset)?;
        let strides = Dims::try_from_fn(self.ndim(), |dim| {
            if dim == last { Ok(1) } else { divide(self.strides()[dim], LayoutPart::Stride(dim)) }
        })?;
        Self::new(Shape::from_dims(sizes), Strides::from_dims(strides), offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::MAX_BYTES;

    fn layout(sizes: &[usize], strides: &[usize], offset: usize) -> Layout {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), offset).unwrap()
    }

    #[test]
    fn there_and_back() {
        let rows = layout(&[3, 4], &[8, 1], 2);
        let bytes = rows.view_dtype(4, 1).unwrap();
        assert_eq!(bytes, layout(&[3, 16], &[32, 1], 8));
        assert_eq!(bytes.view_dtype(1, 4).unwrap(), rows);
        assert_eq!(layout(&[3], &[0], 0).view_dtype(4, 4).unwrap(), layout(&[3], &[0], 0));
    }

    #[test]
    fn everything_has_to_divide() {
        let refusal = |sizes: &[usize], strides: &[usize], offset| {
            layout(sizes, strides, offset).view_dtype(1, 4).unwrap_err()
        };
        let indivisible = |part, value| Error::Indivisible { part, value, by: 4 };
        assert_eq!(refusal(&[2, 6], &[8, 1], 0), indivisible(LayoutPart::Size(1), 6));
        assert_eq!(refusal(&[2, 4], &[6, 1], 0), indivisible(LayoutPart::Stride(0), 6));
        assert_eq!(refusal(&[1, 4], &[6, 1], 0), indivisible(LayoutPart::Stride(0), 6), "even here");
        assert_eq!(refusal(&[2, 4], &[8, 1], 2), indivisible(LayoutPart::Offset, 2));
    }

    #[test]
    fn refusals() {
        assert_eq!(layout(&[], &[], 0).view_dtype(4, 1), Err(Error::NoDimensions));
        assert_eq!(layout(&[4], &[2], 0).view_dtype(4, 1), Err(Error::LastStride { stride: 2 }));
        for (from, to) in [(3, 2), (4, 0), (0, 4)] {
            assert_eq!(layout(&[4], &[1], 0).view_dtype(from, to), Err(Error::ItemsizeRatio { from, to }));
        }
        let overflow = |quantity| Err(Error::Overflow { quantity });
        let far = layout(&[1], &[1], MAX_BYTES - 1);
        assert_eq!(far.view_dtype(2, 1), overflow(Quantity::ElementSpan));
        let long = layout(&[MAX_BYTES], &[1], 0);
        assert_eq!(long.view_dtype(2, 1), overflow(Quantity::ElementCount));
    }
}
