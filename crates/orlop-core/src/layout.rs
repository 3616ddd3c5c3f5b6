//! Layouts: where the elements of a view lie in its storage.
//!
//! A [`Layout`] is shape, strides and offset together, checked together: after construction the lowest and the highest
//! element it reaches are known and fit, so the question "does this view stay within its storage?" is one comparison.
//! Number of elements, reach and contiguity are computed in the same pass and kept, because every operator asks for
//! them and views are made more often than they are changed (never: a layout is a value).

use core::{fmt, ops::Range};

use crate::{
    Error, MemoryFormat, Quantity, Result, Shape, Strides,
    bytes::{self, MAX_BYTES},
    dims::Dims,
    format::{is_laid_out_in, is_ordered_like},
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
pub struct Layout {
    shape: Shape,
    strides: Strides,
    offset: usize,
    numel: usize,
    /// Distance from the first element to one past the last; 0 without elements. `offset + span` fits.
    span: usize,
    contiguous: bool,
}

impl Layout {
    /// A layout of these sizes and strides, its first element at `offset`.
    ///
    /// # Errors
    /// [`Error::RankMismatch`]; [`Error::Overflow`] where an element would lie beyond [`MAX_BYTES`].
    #[inline]
    pub fn new(shape: Shape, strides: Strides, offset: usize) -> Result<Self> {
        if shape.ndim() != strides.ndim() {
            return Err(Error::RankMismatch { sizes: shape.ndim(), strides: strides.ndim() });
        }
        let (mut numel, mut last, mut contiguous) = (1_usize, Some(0_usize), true);
        for (&size, &stride) in shape.iter().zip(strides.iter()).rev() {
            contiguous &= size == 1 || stride == numel;
            last = extend(last, size, stride);
            // Fits by the invariant of `Shape`, or ends up as 0.
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

    /// The row-major layout of a shape, at offset 0.
    #[inline]
    #[must_use]
    pub fn contiguous(shape: Shape) -> Self {
        let (strides, numel) = (Strides::contiguous(&shape), shape.numel());
        Self { shape, strides, offset: 0, numel, span: numel, contiguous: true }
    }

    /// The layout of a shape in `format`, at offset 0.
    ///
    /// # Errors
    /// As [`MemoryFormat::strides`].
    pub fn in_format(shape: Shape, format: MemoryFormat) -> Result<Self> {
        let strides = format.strides(&shape)?;
        Self::new(shape, strides, 0)
    }

    /// The sizes.
    #[inline]
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The strides, in elements.
    #[inline]
    #[must_use]
    pub const fn strides(&self) -> &Strides {
        &self.strides
    }

    /// Position of the first element in the storage, in elements.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The number of dimensions.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub const fn numel(&self) -> usize {
        self.numel
    }

    /// Whether there are no elements.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.numel == 0
    }

    /// From the first element reached to one past the last, in elements of the storage; empty without elements.
    #[inline]
    #[must_use]
    pub const fn element_range(&self) -> Range<usize> {
        self.offset..self.offset + self.span
    }

    /// [`element_range`](Self::element_range) in bytes.
    ///
    /// # Errors
    /// [`Error::Overflow`] above [`MAX_BYTES`].
    #[inline]
    pub fn byte_range(&self, itemsize: usize) -> Result<Range<usize>> {
        let Range { start, end } = self.element_range();
        Ok(bytes::checked_bytes(start, itemsize)?..bytes::checked_bytes(end, itemsize)?)
    }

    /// Checks that every element lies in a storage of `storage_bytes`. A layout without elements lies in any.
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

    /// Whether the elements lie row-major and without gaps. So do no elements, and so does one.
    #[inline]
    #[must_use]
    pub const fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Whether the elements lie in `format` and without gaps: whether converting to it would change nothing.
    #[must_use]
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        match (format, format.channels_last_order()) {
            (MemoryFormat::Preserve, _) => self.is_non_overlapping_and_dense(),
            (_, Some(order)) => is_laid_out_in(order, &self.shape, &self.strides),
            (_, None) => self.is_contiguous(),
        }
    }

    /// Whether the elements fill a range of the storage, each place once, in whatever order of dimensions.
    #[must_use]
    pub fn is_non_overlapping_and_dense(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        // Dense means that some dimension has stride 1, another continues where that one ends, and so on. Sizes are 2
        // or more, so the expected stride grows and no dimension is met twice.
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

    /// The format that an operator should give its output when this is its input: channels-last where the strides
    /// rise that way, gaps allowed, else contiguous.
    #[must_use]
    pub fn suggested_format(&self) -> MemoryFormat {
        [MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d]
            .into_iter()
            .find(|format| {
                format
                    .channels_last_order()
                    .is_some_and(|order| is_ordered_like(order, &self.shape, &self.strides))
            })
            .unwrap_or_default()
    }

    /// The strides of a new tensor like this one: the very same where they are dense, else dense strides in the same
    /// order of dimensions.
    ///
    /// The order is found as PyTorch finds it: a stable sort by stride, for equal strides by size, in which broadcast
    /// dimensions (stride 0) compare equal to all and so stay where they are.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape, Strides};
    ///
    /// // Every other row of a transposed 4 × 3 matrix.
    /// let view = Layout::new(Shape::new(&[2, 4])?, Strides::new(&[2, 3])?, 0)?;
    /// assert_eq!(view.preserved_strides(), [1, 2]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[must_use]
    pub fn preserved_strides(&self) -> Strides {
        if self.is_non_overlapping_and_dense() {
            return self.strides.clone();
        }
        let mut order = Dims::zeros(self.ndim());
        let order = order.as_mut_slice();
        for (slot, dim) in order.iter_mut().zip((0..self.ndim()).rev()) {
            *slot = dim;
        }
        // Insertion by hand: with stride 0 equal to everything this is no total order, and the outcome depends on
        // which pairs are compared.
        for sorted in 1..order.len() {
            let mut moving = sorted;
            for place in (0..sorted).rev() {
                match self.is_slower(order[place], order[moving]) {
                    Some(true) => {
                        order.swap(place, moving);
                        moving = place;
                    }
                    Some(false) => break,
                    None => {}
                }
            }
        }
        Strides::in_order(&self.shape, order.iter().copied(), |stride, size| next_stride(stride, size.max(1)))
    }

    /// The strides that this layout's elements have in `format`.
    ///
    /// # Errors
    /// [`Error::FormatRank`] where the format has another number of dimensions.
    pub fn strides_in(&self, format: MemoryFormat) -> Result<Strides> {
        match format {
            MemoryFormat::Preserve => Ok(self.preserved_strides()),
            _ => format.strides(&self.shape),
        }
    }

    /// Whether dimension `a` is certainly slower than `b` in memory, or certainly not, or neither.
    fn is_slower(&self, a: usize, b: usize) -> Option<bool> {
        let (stride_a, stride_b) = (self.strides[a], self.strides[b]);
        match stride_a.cmp(&stride_b) {
            _ if stride_a == 0 || stride_b == 0 => None,
            core::cmp::Ordering::Equal => (self.shape[a] > self.shape[b]).then_some(true),
            unequal => Some(unequal.is_gt()),
        }
    }

    /// Size and stride of each dimension, outermost first.
    pub(crate) fn dims(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + '_ {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    /// Distance from the first element to one past the last.
    pub(crate) const fn span(&self) -> usize {
        self.span
    }
}

/// The furthest element once a dimension is added; `None` stands for out of range.
#[inline]
fn extend(last: Option<usize>, size: usize, stride: usize) -> Option<usize> {
    last?.checked_add(size.saturating_sub(1).checked_mul(stride)?)
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

    #[test]
    fn suggested_formats() {
        let suggest =
            |sizes: &[usize], strides: &[usize]| layout(sizes, strides, 0).unwrap().suggested_format();
        assert_eq!(suggest(&[2, 3, 4, 5], &[60, 1, 15, 3]), MemoryFormat::ChannelsLast);
        assert_eq!(suggest(&[2, 3, 4, 5], &[60, 20, 5, 1]), MemoryFormat::Contiguous);
        assert_eq!(suggest(&[2, 3, 2, 5], &[60, 1, 30, 3]), MemoryFormat::ChannelsLast, "a slice with gaps");
        assert_eq!(suggest(&[2, 1, 1, 1], &[1, 1, 1, 1]), MemoryFormat::Contiguous, "a tie");
        assert_eq!(suggest(&[2, 3, 4, 5, 6], &[360, 1, 90, 18, 3]), MemoryFormat::ChannelsLast3d);
    }
}
