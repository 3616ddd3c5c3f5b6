//! [`Layout`]: where the elements of a view are in its storage.
//!
//! A [`Layout`] checks shape, strides and offset together. After construction its lowest and highest
//! positions are known and fit, so "does this view stay within its storage?" is one comparison. The number of
//! elements, the span and the contiguity are computed in the same pass and stored, because every operator
//! reads them. A layout derived from a checked one inherits what it does not change; debug builds count
//! again.

mod in_place;

pub(crate) use self::in_place::KeptIndices;

use core::{fmt, ops::Range};

use crate::{
    Error, MemoryFormat, Quantity, Result, Shape, Strides,
    bytes::{self, MAX_BYTES},
    format::is_laid_out_in,
    strides::next_stride,
};

/// Shape, strides and offset of a view, all in elements.
///
/// ```
/// use orlop_core::{Layout, Shape, Strides};
///
/// // Columns 1..3 of a row-major 2 × 4 matrix.
/// let view = Layout::new(Shape::new(&[2, 2])?, Strides::new(&[4, 1])?, 1)?;
/// assert_eq!(view.element_range(), 1..7);
/// assert!(!view.is_contiguous());
/// assert!(view.check_within(8 * 4, 4).is_ok());
/// assert!(view.check_within(6 * 4, 4).is_err());
/// # Ok::<(), orlop_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Layout {
    /// First, so that sizes and strides are paired for 16-byte copies. Otherwise a load of a fresh pair would
    /// wait for two stores.
    offset: usize,
    shape: Shape,
    strides: Strides,
    numel: usize,
    /// The distance from the first element to one past the last; 0 without elements. `offset + span` fits.
    span: usize,
    contiguous: bool,
}

impl Layout {
    /// Creates a layout of these sizes and strides, with its first element at `offset`.
    ///
    /// # Errors
    /// [`Error::RankMismatch`]; [`Error::Overflow`] if an element is beyond [`MAX_BYTES`].
    #[inline]
    pub fn new(shape: Shape, strides: Strides, offset: usize) -> Result<Self> {
        if shape.ndim() != strides.ndim() {
            return Err(Error::RankMismatch { sizes: shape.ndim(), strides: strides.ndim() });
        }
        let (mut numel, mut last, mut contiguous) = (1_usize, Some(0_usize), true);
        for (&size, &stride) in shape.iter().zip(strides.iter()).rev() {
            contiguous &= size == 1 || stride == numel;
            last = extend(last, size, stride);
            // Fits by the invariant of `Shape`, or is 0.
            numel = numel.wrapping_mul(size);
        }
        let span = match last {
            _ if numel == 0 => Some(0),
            Some(last) => last.checked_add(1),
            None => None,
        };
        match span {
            Some(span) if offset.checked_add(span).is_some_and(|end| end <= MAX_BYTES) => {
                Ok(Self { shape, strides, offset, numel, span, contiguous: contiguous || numel == 0 })
            }
            _ => Err(Error::Overflow { quantity: Quantity::ElementSpan }),
        }
    }

    /// Returns a layout of the same elements in the same order along other dimensions; the counts do not
    /// change.
    #[inline(always)]
    pub(crate) fn regrouped(&self, shape: Shape, strides: Strides) -> Self {
        Self { shape, strides, ..*self }.verified()
    }

    /// Checks the stored counts, in debug builds.
    #[inline(always)]
    fn check_counts(&self) {
        debug_assert_eq!(
            Self::new(self.shape.clone(), self.strides.clone(), self.offset).as_ref(),
            Ok(self),
            "counted anew"
        );
    }

    /// Returns `self` after [`check_counts`](Self::check_counts).
    #[inline(always)]
    fn verified(self) -> Self {
        self.check_counts();
        self
    }

    /// Returns `true` if the layout has no heap parts, so that copying its bytes copies the layout.
    ///
    /// For code that makes millions of views: [`Clone`] has to check each part for the heap, and copies word
    /// by word.
    #[inline]
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        // There are as many strides as sizes, and the number of values decides where they are.
        debug_assert!(self.shape.dims().is_inline() == self.strides.dims().is_inline());
        self.shape.dims().is_inline()
    }

    /// Creates the row-major layout of a shape, at offset 0.
    #[inline(always)]
    #[must_use]
    pub fn contiguous(shape: Shape) -> Self {
        let (strides, numel) = (Strides::contiguous(&shape), shape.numel());
        Self { shape, strides, offset: 0, numel, span: numel, contiguous: true }
    }

    /// Creates the layout of a shape in `format`, at offset 0.
    ///
    /// # Errors
    /// As [`MemoryFormat::strides`].
    pub fn in_format(shape: Shape, format: MemoryFormat) -> Result<Self> {
        let strides = format.strides(&shape)?;
        Self::new(shape, strides, 0)
    }

    /// Returns the sizes.
    #[inline]
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the strides, in elements.
    #[inline]
    #[must_use]
    pub const fn strides(&self) -> &Strides {
        &self.strides
    }

    /// Returns the position of the first element in the storage, in elements.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of dimensions.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub const fn numel(&self) -> usize {
        self.numel
    }

    /// Returns `true` if there are no elements.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.numel == 0
    }

    /// Returns the range from the first position to one past the last, in elements of the storage; empty
    /// without elements.
    #[inline]
    #[must_use]
    pub const fn element_range(&self) -> Range<usize> {
        self.offset..self.offset + self.span
    }

    /// Returns [`element_range`](Self::element_range) in bytes.
    ///
    /// # Errors
    /// [`Error::Overflow`] above [`MAX_BYTES`].
    #[inline]
    pub fn byte_range(&self, itemsize: usize) -> Result<Range<usize>> {
        let Range { start, end } = self.element_range();
        Ok(bytes::checked_bytes(start, itemsize)?..bytes::checked_bytes(end, itemsize)?)
    }

    /// Checks that every element is within a storage of `storage_bytes`. A layout without elements is within
    /// any storage.
    ///
    /// # Errors
    /// [`Error::OutOfStorage`], or [`Error::Overflow`] as [`byte_range`](Self::byte_range).
    #[inline]
    pub fn check_within(&self, storage_bytes: usize, itemsize: usize) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let end_bytes = self.byte_range(itemsize)?.end;
        if end_bytes > storage_bytes { Err(Error::OutOfStorage { end_bytes, storage_bytes }) } else { Ok(()) }
    }

    /// Returns `true` if the elements are row-major without gaps. Layouts of zero or one element always are.
    #[inline]
    #[must_use]
    pub const fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Returns `true` if the elements are in `format` without gaps, so that converting to it would change
    /// nothing.
    #[must_use]
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        match (format, format.channels_last_order()) {
            (MemoryFormat::Preserve, _) => self.is_non_overlapping_and_dense(),
            (_, Some(order)) => is_laid_out_in(order, &self.shape, &self.strides),
            (_, None) => self.is_contiguous(),
        }
    }

    /// Returns `true` if the elements fill a range of the storage, each position once, in any order of
    /// dimensions.
    #[must_use]
    pub fn is_non_overlapping_and_dense(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        // Dense means that one dimension has stride 1, another continues where that one ends, and so on.
        // Sizes are 2 or more, so the expected stride grows and no dimension matches twice.
        let extended = || self.dims().filter(|&(size, _)| size >= 2);
        let mut expected = 1;
        extended().all(|_| match extended().find(|&(_, stride)| stride == expected) {
            Some((size, stride)) => {
                expected = next_stride(stride, size);
                true
            }
            None => false,
        })
    }

    /// Returns the size and stride of each dimension, outermost first.
    pub(crate) fn dims(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + '_ {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    /// Returns the distance from the first element to one past the last.
    pub(crate) const fn span(&self) -> usize {
        self.span
    }
}

/// Returns the last position after a dimension is added; `None` stands for out of range.
#[inline]
fn extend(last: Option<usize>, size: usize, stride: usize) -> Option<usize> {
    last?.checked_add(size.saturating_sub(1).checked_mul(stride)?)
}

/// Returns `true` if dimensions of these sizes and strides, innermost first, are row-major without gaps.
pub(crate) fn is_in_a_row(dims: impl Iterator<Item = (usize, usize)>) -> bool {
    let mut expected = 1;
    dims.into_iter().all(|(size, stride)| {
        let fits = size == 1 || stride == expected;
        expected = next_stride(expected, size);
        fits
    })
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("shape", &self.shape)
            .field("strides", &self.strides)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PyTorch's predicates and preserved strides: tests/it/layouts.rs.

    fn layout(sizes: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        Layout::new(Shape::new(sizes)?, Strides::new(strides)?, offset)
    }

    #[test]
    fn reach() {
        assert_eq!(layout(&[], &[], 7).unwrap().element_range(), 7..8);
        assert_eq!(layout(&[3, 4], &[0, 2], 1).unwrap().element_range(), 1..8);
        assert_eq!(layout(&[3, 0], &[10, 1], 5).unwrap().element_range(), 5..5);
        assert_eq!(layout(&[2, 2], &[4, 1], 1).unwrap().byte_range(4), Ok(4..28));
    }

    #[test]
    fn bounds() {
        let view = layout(&[2, 2], &[4, 1], 1).unwrap();
        assert_eq!(view.check_within(28, 4), Ok(()));
        assert_eq!(view.check_within(27, 4), Err(Error::OutOfStorage { end_bytes: 28, storage_bytes: 27 }));
        assert_eq!(layout(&[0], &[1], 100).unwrap().check_within(0, 8), Ok(()));
    }

    #[test]
    fn out_of_range_is_an_error_and_never_wraps() {
        let overflow = Err(Error::Overflow { quantity: Quantity::ElementSpan });
        assert_eq!(layout(&[3], &[MAX_BYTES], 0), overflow);
        assert_eq!(layout(&[2, 2], &[MAX_BYTES, MAX_BYTES], 0), overflow);
        assert_eq!(layout(&[1], &[1], MAX_BYTES), overflow);
        assert_eq!(layout(&[1], &[1], usize::MAX), overflow);
        assert!(layout(&[1, 0], &[MAX_BYTES, MAX_BYTES], 0).is_ok());
        assert!(layout(&[1], &[MAX_BYTES], 0).is_ok(), "a dimension of size 1 is exempt");
        assert!(layout(&[MAX_BYTES], &[1], 0).unwrap().byte_range(2).is_err());
    }
}
