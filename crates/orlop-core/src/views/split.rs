//! Splitting a dimension into pieces.
//!
//! The pieces are checked once, when the split is requested; the iterator then makes one at a time, without a
//! list.

use core::iter::FusedIterator;

use crate::{DimInt, Error, Layout, Quantity, Result, Shape, bytes::MAX_BYTES, layout::KeptIndices};

/// An iterator over the pieces of a dimension, in order; made by [`Layout::split`],
/// [`Layout::split_with_sizes`] and [`Layout::chunk`].
#[derive(Clone, Debug)]
pub struct Pieces<'a, D = usize> {
    layout: &'a Layout,
    dim: usize,
    /// The start of the next piece. It and all later pieces are within the dimension.
    start: usize,
    sizes: PieceSizes<'a, D>,
}

#[derive(Clone, Debug)]
enum PieceSizes<'a, D> {
    /// `pieces` pieces of this size; the last one is smaller if the size does not divide the dimension.
    Equal { size: usize, pieces: usize },
    /// The size of each piece.
    Listed(&'a [D]),
}

impl Layout {
    /// Splits a dimension into pieces of `size`; the last one may be smaller. An empty dimension gives one
    /// empty piece.
    ///
    /// `[.., n, ..]` becomes `⌈n / size⌉` times `[.., size, ..]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[7, 2])?);
    /// let pieces: Vec<_> = rows.split(3, 0)?.map(|piece| piece.element_range()).collect();
    /// assert_eq!(pieces, [0..6, 6..12, 12..14]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::EmptyPieces`] for a `size` of
    /// 0 if the dimension is not empty; [`Error::Overflow`] for a layout without elements if an offset would
    /// exceed any storage.
    pub fn split(&self, size: usize, dim: isize) -> Result<Pieces<'_>> {
        let dim = self.existing_dim(dim)?;
        let length = self.shape()[dim];
        if size == 0 && length > 0 {
            return Err(Error::EmptyPieces { size: length });
        }
        let pieces = length.div_ceil(size.max(1)).max(1);
        self.check_last_piece(dim, (pieces - 1).saturating_mul(size))?;
        Ok(Pieces { layout: self, dim, start: 0, sizes: PieceSizes::Equal { size, pieces } })
    }

    /// Splits a dimension into pieces of these sizes, which add up to its own.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let qkv = Layout::contiguous(Shape::new(&[10, 96])?);
    /// let shapes: Vec<_> = qkv.split_with_sizes(&[64, 16, 16], -1)?.map(|piece| piece.shape()[1]).collect();
    /// assert_eq!(shapes, [64, 16, 16]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::NegativeSize`],
    /// [`Error::PiecesMismatch`]; [`Error::Overflow`] for an empty last piece whose offset exceeds any
    /// storage.
    pub fn split_with_sizes<'a, D: DimInt>(&'a self, sizes: &'a [D], dim: isize) -> Result<Pieces<'a, D>> {
        let dim = self.existing_dim(dim)?;
        let length = self.shape()[dim];
        let (mut sum, mut last) = (0_usize, 0);
        for (piece, &size) in sizes.iter().enumerate() {
            last = sum;
            sum = sum.saturating_add(Shape::size(size, piece)?);
        }
        if sum != length {
            return Err(Error::PiecesMismatch { sum, size: length });
        }
        self.check_last_piece(dim, last)?;
        Ok(Pieces { layout: self, dim, start: 0, sizes: PieceSizes::Listed(sizes) })
    }

    /// Splits a dimension into at most `count` pieces of equal size, of which the last may be smaller. An
    /// empty dimension gives `count` empty pieces; others can give fewer, because the size is rounded up.
    ///
    /// `[.., n, ..]` becomes `count` times `[.., ⌈n / count⌉, ..]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let row = Layout::contiguous(Shape::new(&[9])?);
    /// let sizes: Vec<_> = row.chunk(4, 0)?.map(|piece| piece.numel()).collect();
    /// assert_eq!(sizes, [3, 3, 3]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::NoPieces`] for a `count` of
    /// 0; [`Error::Overflow`] as in [`split`](Self::split).
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Pieces<'_>> {
        let dim = self.existing_dim(dim)?;
        if count == 0 {
            return Err(Error::NoPieces);
        }
        let length = self.shape()[dim];
        let size = length.div_ceil(count);
        let pieces = if size == 0 { count } else { length.div_ceil(size) };
        self.check_last_piece(dim, (pieces - 1).saturating_mul(size))?;
        Ok(Pieces { layout: self, dim, start: 0, sizes: PieceSizes::Equal { size, pieces } })
    }

    /// Checks that a piece starting at this index has a valid offset. Only pieces without elements can fail,
    /// and no piece starts later.
    fn check_last_piece(&self, dim: usize, start: usize) -> Result<()> {
        let offset =
            start.checked_mul(self.strides()[dim]).and_then(|skipped| skipped.checked_add(self.offset()));
        match offset {
            Some(offset) if offset <= MAX_BYTES => Ok(()),
            _ => Err(Error::Overflow { quantity: Quantity::ElementSpan }),
        }
    }
}

impl<D: DimInt> Iterator for Pieces<'_, D> {
    type Item = Layout;

    #[inline]
    fn next(&mut self) -> Option<Layout> {
        let length = self.layout.shape()[self.dim];
        let size = match &mut self.sizes {
            PieceSizes::Equal { size, pieces } => {
                *pieces = pieces.checked_sub(1)?;
                (length - self.start).min(*size)
            }
            PieceSizes::Listed(sizes) => {
                let (&size, rest) = sizes.split_first()?;
                *sizes = rest;
                size.to_usize()?
            }
        };
        let mut piece = self.layout.clone();
        let first = self.start;
        let cut = piece
            .keep_indices(self.dim.cast_signed(), |_, _, stride| Ok(KeptIndices { first, size, stride }));
        self.start += size;
        // The start was checked when the split was requested.
        cut.ok().map(|()| piece)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self.sizes {
            PieceSizes::Equal { pieces, .. } => pieces,
            PieceSizes::Listed(sizes) => sizes.len(),
        };
        (left, Some(left))
    }
}

impl<D: DimInt> ExactSizeIterator for Pieces<'_, D> {}

impl<D: DimInt> FusedIterator for Pieces<'_, D> {}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::Strides;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(sizes).unwrap())
    }

    fn sizes<D: DimInt>(pieces: Pieces<'_, D>) -> Vec<usize> {
        let expected = pieces.len();
        let sizes: Vec<_> = pieces.map(|piece| piece.numel()).collect();
        assert_eq!(sizes.len(), expected);
        sizes
    }

    #[test]
    fn equal_pieces() {
        assert_eq!(sizes(layout(&[7]).split(3, 0).unwrap()), [3, 3, 1]);
        assert_eq!(sizes(layout(&[6]).split(3, -1).unwrap()), [3, 3]);
        assert_eq!(sizes(layout(&[7]).split(usize::MAX, 0).unwrap()), [7]);
        assert_eq!(sizes(layout(&[0]).split(0, 0).unwrap()), [0]);
        assert_eq!(sizes(layout(&[0]).split(3, 0).unwrap()), [0]);
        assert_eq!(layout(&[7]).split(0, 0).err(), Some(Error::EmptyPieces { size: 7 }));
        assert_eq!(layout(&[]).split(1, 0).err(), Some(Error::NoDimensions));
    }

    #[test]
    fn chunks() {
        assert_eq!(sizes(layout(&[7]).chunk(3, 0).unwrap()), [3, 3, 1]);
        assert_eq!(sizes(layout(&[5]).chunk(4, 0).unwrap()), [2, 2, 1]);
        assert_eq!(sizes(layout(&[2]).chunk(5, 0).unwrap()), [1, 1]);
        assert_eq!(sizes(layout(&[0]).chunk(3, 0).unwrap()), [0, 0, 0]);
        assert_eq!(layout(&[7]).chunk(0, 0).err(), Some(Error::NoPieces));
    }

    #[test]
    fn listed_pieces() {
        let row = layout(&[7]);
        assert_eq!(sizes(row.split_with_sizes(&[3, 0, 4, 0], 0).unwrap()), [3, 0, 4, 0]);
        assert_eq!(sizes(layout(&[0]).split_with_sizes(&[0_i64; 0], 0).unwrap()), []);
        let offsets: Vec<_> =
            row.split_with_sizes(&[3, 4, 0], 0).unwrap().map(|piece| piece.offset()).collect();
        assert_eq!(offsets, [0, 3, 7]);
        let refusal = |sizes: &[i64]| row.split_with_sizes(sizes, 0).err();
        assert_eq!(refusal(&[3, 3]), Some(Error::PiecesMismatch { sum: 6, size: 7 }));
        assert_eq!(refusal(&[8, -1]), Some(Error::NegativeSize { dim: 1, size: -1 }));
        assert_eq!(
            refusal(&[i64::MAX, i64::MAX, i64::MAX]),
            Some(Error::PiecesMismatch { sum: usize::MAX, size: 7 })
        );
    }

    #[test]
    fn an_empty_piece_out_of_range_is_an_error() {
        let far = Layout::new(Shape::new(&[1]).unwrap(), Strides::new(&[MAX_BYTES]).unwrap(), 1).unwrap();
        assert_eq!(sizes(far.split_with_sizes(&[1], 0).unwrap()), [1]);
        let overflow = Error::Overflow { quantity: Quantity::ElementSpan };
        assert_eq!(far.split_with_sizes(&[1, 0], 0).err(), Some(overflow));
        let empty =
            Layout::new(Shape::new(&[0, 2]).unwrap(), Strides::new(&[1, MAX_BYTES]).unwrap(), 1).unwrap();
        assert_eq!(sizes(empty.split(2, 1).unwrap()), [0]);
        assert_eq!(empty.split(1, 1).err(), Some(overflow));
        assert_eq!(empty.chunk(2, 1).err(), Some(overflow));
    }
}
