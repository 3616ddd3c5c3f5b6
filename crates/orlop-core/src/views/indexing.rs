//! Slices, single indices, ranges and strided views.
//!
//! Loops make these views most often. A slice changes one size, one stride and the offset of a checked
//! layout; the new span follows from those, so nothing is checked again.

use crate::{DimInt, Error, Layout, Result, Shape, Strides, layout::KeptIndices, strides::next_stride};

impl Layout {
    /// Returns every `step`-th index of a dimension from `start` to before `end`, as Python slices do:
    /// negative bounds count from the end, bounds out of range are clamped, and a missing bound is that end
    /// of the dimension.
    ///
    /// `[.., n, ..]` becomes `[.., ⌈(end − start) / step⌉, ..]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape, Strides};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[10, 4])?);
    /// let odd = rows.slice(0, Some(1), None, 2)?; // x[1::2]
    /// assert_eq!((odd.shape(), odd.strides()), (&Shape::new(&[5, 4])?, &Strides::new(&[8, 1])?));
    /// assert_eq!(odd.offset(), 4);
    /// assert_eq!(rows.slice(0, Some(-3), Some(100), 1)?.shape(), &[3, 4]); // x[-3:100]
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::ZeroStep`];
    /// [`Error::Overflow`] for an empty slice whose offset exceeds any storage.
    #[inline]
    pub fn slice(&self, dim: isize, start: Option<isize>, end: Option<isize>, step: usize) -> Result<Self> {
        let mut cut = self.clone();
        cut.slice_in_place(dim, start, end, step)?;
        Ok(cut)
    }

    /// Applies [`slice`](Self::slice) in place.
    ///
    /// # Errors
    /// Those of [`slice`](Self::slice); `self` is then unchanged.
    #[inline(always)]
    pub fn slice_in_place(
        &mut self,
        dim: isize,
        start: Option<isize>,
        end: Option<isize>,
        step: usize,
    ) -> Result<()> {
        self.keep_indices(dim, |_, size, stride| {
            let first = start.map_or(0, |start| clamp(start, size));
            let length = end.map_or(size, |end| clamp(end, size)).saturating_sub(first);
            match step {
                0 => Err(Error::ZeroStep),
                1 => Ok(KeptIndices { first, size: length, stride }),
                _ => {
                    Ok(KeptIndices { first, size: length.div_ceil(step), stride: next_stride(stride, step) })
                }
            }
        })
    }

    /// Returns `length` indices of a dimension from `start`, which may count from the end.
    ///
    /// `[.., n, ..]` becomes `[.., length, ..]`. Unlike [`slice`](Self::slice), it does not clamp: a range
    /// that does not fit is an error.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[10, 4])?);
    /// assert_eq!(rows.narrow(0, -3, 2)?.element_range(), 28..36);
    /// assert!(rows.narrow(0, -3, 4).is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::RangeOutOfDim`];
    /// [`Error::Overflow`] for an empty range whose offset exceeds any storage.
    #[inline]
    pub fn narrow(&self, dim: isize, start: isize, length: usize) -> Result<Self> {
        let mut cut = self.clone();
        cut.narrow_in_place(dim, start, length)?;
        Ok(cut)
    }

    /// Applies [`narrow`](Self::narrow) in place.
    ///
    /// # Errors
    /// Those of [`narrow`](Self::narrow); `self` is then unchanged.
    #[inline(always)]
    pub fn narrow_in_place(&mut self, dim: isize, start: isize, length: usize) -> Result<()> {
        self.keep_indices(dim, |dim, size, stride| {
            let first = if start < 0 { size.checked_add_signed(start) } else { Some(start.unsigned_abs()) };
            match first {
                Some(first) if size.checked_sub(first).is_some_and(|rest| length <= rest) => {
                    Ok(KeptIndices { first, size: length, stride })
                }
                _ => Err(Error::RangeOutOfDim { start, length, dim, size }),
            }
        })
    }

    /// Selects one index of a dimension and removes the dimension. A negative index counts from the end.
    ///
    /// `[a, n, b]` becomes `[a, b]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[10, 4])?);
    /// let last = rows.select(0, -1)?;
    /// assert_eq!((last.shape().as_slice(), last.offset()), (&[4][..], 36));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::IndexOutOfRange`];
    /// [`Error::Overflow`] for a layout without elements whose offset would exceed any storage.
    #[inline]
    pub fn select(&self, dim: isize, index: isize) -> Result<Self> {
        let mut part = self.clone();
        part.select_in_place(dim, index)?;
        Ok(part)
    }

    /// Applies [`select`](Self::select) in place.
    ///
    /// # Errors
    /// Those of [`select`](Self::select); `self` is then unchanged.
    #[inline(always)]
    pub fn select_in_place(&mut self, dim: isize, index: isize) -> Result<()> {
        self.keep_index(dim, |dim, size| {
            let at = if index < 0 { size.checked_add_signed(index) } else { Some(index.unsigned_abs()) };
            match at {
                Some(at) if at < size => Ok(at),
                _ => Err(Error::IndexOutOfRange { index, dim, size }),
            }
        })
    }

    /// Returns a layout of these sizes and strides over the same storage, from `storage_offset` or else this
    /// layout's offset.
    ///
    /// This is the only view that can reach outside the original layout: the caller who knows the storage
    /// must call [`check_within`](Self::check_within).
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let row = Layout::contiguous(Shape::new(&[8])?);
    /// let windows = row.as_strided(&[6, 3], &[1, 1], None)?;
    /// assert!(windows.check_within(8 * 4, 4).is_ok());
    /// assert!(row.as_strided(&[7, 3], &[1, 1], None)?.check_within(8 * 4, 4).is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::RankMismatch`], [`Error::NegativeSize`], [`Error::NegativeStride`] along any dimension,
    /// [`Error::NegativeOffset`]; [`Error::Overflow`] if an element is beyond
    /// [`MAX_BYTES`](crate::bytes::MAX_BYTES).
    pub fn as_strided<S: DimInt, T: DimInt>(
        &self,
        sizes: &[S],
        strides: &[T],
        storage_offset: Option<isize>,
    ) -> Result<Self> {
        let offset = match storage_offset {
            None => self.offset(),
            Some(offset) => usize::try_from(offset).map_err(|_| Error::NegativeOffset { offset })?,
        };
        Self::new(Shape::new(sizes)?, Strides::new(strides)?, offset)
    }
}

/// Converts a slice bound to an index of a dimension of this size.
#[inline]
fn clamp(bound: isize, size: usize) -> usize {
    let distance = bound.unsigned_abs();
    if bound < 0 { size.saturating_sub(distance) } else { distance.min(size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quantity, bytes::MAX_BYTES};

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(sizes).unwrap())
    }

    #[test]
    fn slices_clamp_like_python() {
        let cut = |start, end, step| {
            let cut = layout(&[10]).slice(0, start, end, step).unwrap();
            (cut.shape()[0], cut.strides()[0], cut.offset())
        };
        assert_eq!(cut(None, None, 1), (10, 1, 0));
        assert_eq!(cut(None, None, 3), (4, 3, 0));
        assert_eq!(cut(Some(-100), Some(-8), 1), (2, 1, 0));
        assert_eq!(cut(Some(7), Some(3), 1), (0, 1, 7));
        assert_eq!(cut(Some(100), None, 2), (0, 2, 10));
        assert_eq!(cut(Some(isize::MIN), Some(isize::MAX), usize::MAX), (1, MAX_BYTES, 0));
        assert_eq!(layout(&[10]).slice(0, None, None, 0), Err(Error::ZeroStep));
    }

    #[test]
    fn ranges_have_to_fit() {
        let row = layout(&[2, 5]);
        assert_eq!(row.narrow(1, -5, 5).unwrap(), row);
        assert_eq!(row.narrow(1, 5, 0).unwrap().offset(), 5);
        for (start, length) in [(-6, 1), (6, 0), (5, 1), (0, 6), (isize::MIN, 0), (1, usize::MAX)] {
            let refused = Error::RangeOutOfDim { start, length, dim: 1, size: 5 };
            assert_eq!(row.narrow(-1, start, length), Err(refused));
        }
    }

    #[test]
    fn indices_have_to_fit() {
        let row = layout(&[5]);
        assert_eq!(row.select(0, -5).unwrap().element_range(), 0..1);
        assert_eq!(row.select(0, 4).unwrap().element_range(), 4..5);
        for index in [5, -6, isize::MIN, isize::MAX] {
            assert_eq!(row.select(0, index), Err(Error::IndexOutOfRange { index, dim: 0, size: 5 }));
        }
    }

    #[test]
    fn scalars_are_not_cut() {
        let scalar = layout(&[]);
        assert_eq!(scalar.slice(0, None, None, 1), Err(Error::NoDimensions));
        assert_eq!(scalar.narrow(0, 0, 1), Err(Error::NoDimensions));
        assert_eq!(scalar.select(-1, 0), Err(Error::NoDimensions));
    }

    #[test]
    fn a_stride_out_of_range_leads_nowhere_or_is_an_error() {
        let far =
            Layout::new(Shape::new(&[1, 2]).unwrap(), Strides::new(&[MAX_BYTES, 1]).unwrap(), 1).unwrap();
        assert_eq!(far.slice(0, None, None, 2).unwrap(), far);
        let overflow = Err(Error::Overflow { quantity: Quantity::ElementSpan });
        assert_eq!(far.slice(0, Some(1), None, 1), overflow);
        assert_eq!(far.narrow(0, 1, 0), overflow);
    }

    #[test]
    fn laid_over_by_hand() {
        let row = layout(&[8]).narrow(0, 3, 2).unwrap();
        assert_eq!(row.as_strided(&[0; 0], &[0; 0], None).unwrap().element_range(), 3..4);
        assert_eq!(row.as_strided(&[2], &[1, 1], None), Err(Error::RankMismatch { sizes: 1, strides: 2 }));
        assert_eq!(row.as_strided(&[1], &[-1], None), Err(Error::NegativeStride { dim: 0, stride: -1 }));
        assert_eq!(row.as_strided(&[-1], &[1], None), Err(Error::NegativeSize { dim: 0, size: -1 }));
        assert_eq!(row.as_strided(&[0], &[1], Some(-2)), Err(Error::NegativeOffset { offset: -2 }));
    }
}
