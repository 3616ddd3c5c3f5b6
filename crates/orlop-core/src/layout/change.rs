//! Layouts changed in place: what views make of a copy.
//!
//! Each change says what becomes of the number of elements, their reach and contiguity, and asks once what is on the heap.

use super::{Layout, is_in_a_row};
use crate::{Error, Quantity, Result, Shape, Strides, bytes::MAX_BYTES, dims::Dims, views::wrap_dim};

impl Layout {
    /// Some indices of a dimension instead of all: which, says `keep` from the dimension's number, size and stride.
    ///
    /// They are indices that there are, in their order, so the elements are no more than there were and reach no
    /// further: the span follows.
    ///
    /// # Errors
    /// [`Error::NoDimensions`], [`Error::DimOutOfRange`]; those of `keep`; [`Error::Overflow`] for an offset beyond
    /// [`MAX_BYTES`], as one without elements can be. Nothing has changed then.
    #[inline(always)]
    pub(crate) fn keep_indices(
        &mut self,
        dim: isize,
        keep: impl FnOnce(usize, usize, usize) -> Result<Kept>,
    ) -> Result<()> {
        let before = (self.offset, self.span);
        // Asked once what is on the heap, the compiler has all else in registers.
        let (offset, numel, span) = match (self.shape.dims_mut(), self.strides.dims_mut()) {
            (Dims::Inline { len, values: sizes }, Dims::Inline { values: strides, .. }) => {
                keep_among(len.get(), sizes, strides, before, dim, keep)?
            }
            (sizes, strides) => {
                keep_among_many(sizes.as_mut_slice(), strides.as_mut_slice(), before, dim, keep)?
            }
        };
        self.offset = offset;
        self.count_part(numel, span);
        Ok(())
    }

    /// One index of a dimension, which is gone then: which, says `at` from the dimension's number and size.
    ///
    /// # Errors
    /// As [`keep_indices`](Self::keep_indices).
    #[inline(always)]
    pub(crate) fn keep_index(
        &mut self,
        dim: isize,
        at: impl FnOnce(usize, usize) -> Result<usize>,
    ) -> Result<()> {
        if self.is_inline() { self.keep_index_now(dim, at) } else { self.keep_index_on_heap(dim, at) }
    }

    /// [`keep_index`](Self::keep_index), for who has asked what is on the heap.
    #[inline(always)]
    fn keep_index_now(&mut self, dim: isize, at: impl FnOnce(usize, usize) -> Result<usize>) -> Result<()> {
        if self.ndim() == 0 {
            return Err(Error::NoDimensions);
        }
        let dim = wrap_dim(dim, self.ndim())?;
        let (size, stride) = (self.shape[dim], self.strides[dim]);
        self.offset = offset_at(self.offset, at(dim, size)?, stride)?;
        self.shape.dims_mut().remove(dim);
        self.strides.dims_mut().remove(dim);
        let (numel, span) = (self.shape.numel(), span_once(self.span, (size, stride), (1, stride)));
        self.count_part(numel, if numel == 0 { 0 } else { span });
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn keep_index_on_heap(
        &mut self,
        dim: isize,
        at: impl FnOnce(usize, usize) -> Result<usize>,
    ) -> Result<()> {
        self.keep_index_now(dim, at)
    }

    /// Counts what is left of the elements once dimensions have changed: as many as are left, and how far they reach.
    #[inline(always)]
    fn count_part(&mut self, numel: usize, span: usize) {
        self.numel = numel;
        self.span = span;
        // Places that rise from element to element, as those of a contiguous layout do, also do so in any part of it:
        // that is contiguous if it fills its reach.
        self.contiguous = span == numel && (self.contiguous || numel == 0 || self.is_in_a_row_now());
        self.check_counts();
    }

    /// The dimensions in this order, which names each once.
    #[inline(always)]
    pub(crate) fn order_dims(&mut self, order: &Dims) {
        self.shape.dims_mut().reorder(order);
        self.strides.dims_mut().reorder(order);
        // Only what fills its reach can be.
        self.contiguous = self.is_empty() || self.span == self.numel && self.is_in_a_row_now();
        self.check_counts();
    }

    /// Two dimensions exchanged.
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`].
    #[inline(always)]
    pub(crate) fn swap_dims(&mut self, dim0: isize, dim1: isize) -> Result<()> {
        let lead_on = match (self.shape.dims_mut(), self.strides.dims_mut()) {
            (Dims::Inline { len, values: sizes }, Dims::Inline { values: strides, .. }) => {
                swap_among(len.get(), sizes, strides, dim0, dim1)?
            }
            (sizes, strides) => swap_among_many(sizes.as_mut_slice(), strides.as_mut_slice(), dim0, dim1)?,
        };
        if let Some(lead_on) = lead_on {
            // Swapping two dimensions that lead somewhere undoes a row. See also `order_dims`.
            let undone = self.contiguous && lead_on;
            self.contiguous = self.is_empty() || !undone && self.span == self.numel && self.is_in_a_row_now();
            self.check_counts();
        }
        Ok(())
    }

    /// The same elements in the same order, along other dimensions: nothing that was counted changes.
    #[inline(always)]
    pub(crate) fn set_dims(&mut self, shape: Shape, strides: Strides) {
        (self.shape, self.strides) = (shape, strides);
        self.check_counts();
    }

    /// The same elements over and over, `numel` of them, by strides of 0; or none if `numel` says so.
    #[inline(always)]
    pub(crate) fn repeat(&mut self, shape: Shape, strides: Strides, numel: usize) {
        (self.shape, self.strides) = (shape, strides);
        // Twice the same place is no row.
        self.contiguous = numel == 0 || self.contiguous && numel == self.numel;
        self.span = if numel == 0 { 0 } else { self.span };
        self.numel = numel;
        self.check_counts();
    }

    /// Without a dimension of size 1: nothing that was counted changes.
    #[inline(always)]
    pub(crate) fn remove_dim(&mut self, dim: usize) {
        self.shape.dims_mut().remove(dim);
        self.strides.dims_mut().remove(dim);
        self.check_counts();
    }

    /// With a dimension of size 1 and this stride before another, or behind the last: nothing that was counted changes.
    #[inline(always)]
    pub(crate) fn insert_dim(&mut self, dim: usize, stride: usize) {
        self.shape.dims_mut().insert(dim, 1);
        self.strides.dims_mut().insert(dim, stride);
        self.check_counts();
    }

    #[cold]
    fn is_in_a_row_now(&self) -> bool {
        is_in_a_row(self.dims().rev())
    }
}

/// Which indices of a dimension are kept: from `first` on so many, so far apart. `first` may be one past the last if there
/// are none.
pub(crate) struct Kept {
    pub(crate) first: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
}

/// Changes a dimension as [`Layout::keep_indices`] does; `sizes` and `strides` may go on behind the `ndim`th with ones.
/// Offset, number of elements and span that come of it.
#[inline(always)]
fn keep_among(
    ndim: usize,
    sizes: &mut [usize],
    strides: &mut [usize],
    (offset, span): (usize, usize),
    dim: isize,
    keep: impl FnOnce(usize, usize, usize) -> Result<Kept>,
) -> Result<(usize, usize, usize)> {
    if ndim == 0 {
        return Err(Error::NoDimensions);
    }
    let dim = wrap_dim(dim, ndim)?;
    let (size, stride) = (sizes[dim], strides[dim]);
    let kept = keep(dim, size, stride)?;
    let offset = offset_at(offset, kept.first, stride)?;
    (sizes[dim], strides[dim]) = (kept.size, kept.stride);
    // Fits by the invariant of `Shape`, or ends up as 0.
    let numel = sizes.iter().fold(1, |product: usize, &size| product.wrapping_mul(size));
    let span = span_once(span, (size, stride), (kept.size, kept.stride));
    Ok((offset, numel, if numel == 0 { 0 } else { span }))
}

/// Where an index of a dimension with this stride begins.
#[inline(always)]
fn offset_at(offset: usize, index: usize, stride: usize) -> Result<usize> {
    match index.checked_mul(stride).and_then(|skipped| skipped.checked_add(offset)) {
        Some(offset) if offset <= MAX_BYTES => Ok(offset),
        _ => Err(Error::Overflow { quantity: Quantity::ElementSpan }),
    }
}

#[cold]
#[inline(never)]
fn keep_among_many(
    sizes: &mut [usize],
    strides: &mut [usize],
    before: (usize, usize),
    dim: isize,
    keep: impl FnOnce(usize, usize, usize) -> Result<Kept>,
) -> Result<(usize, usize, usize)> {
    keep_among(sizes.len(), sizes, strides, before, dim, keep)
}

/// Exchanges two of `ndim` dimensions. Whether both lead somewhere; `None` if they are one.
#[inline(always)]
fn swap_among(
    ndim: usize,
    sizes: &mut [usize],
    strides: &mut [usize],
    dim0: isize,
    dim1: isize,
) -> Result<Option<bool>> {
    let (a, b) = (wrap_dim(dim0, ndim)?, wrap_dim(dim1, ndim)?);
    if a == b {
        return Ok(None);
    }
    sizes.swap(a, b);
    strides.swap(a, b);
    Ok(Some(sizes[a] > 1 && sizes[b] > 1))
}

#[cold]
#[inline(never)]
fn swap_among_many(
    sizes: &mut [usize],
    strides: &mut [usize],
    dim0: isize,
    dim1: isize,
) -> Result<Option<bool>> {
    swap_among(sizes.len(), sizes, strides, dim0, dim1)
}

/// The span once a dimension has another size and stride that reach no further. Without elements it means nothing.
#[inline]
fn span_once(span: usize, old: (usize, usize), new: (usize, usize)) -> usize {
    // Terms of the layout's own span if there are elements; if not, nobody looks.
    let reach = |(size, stride): (usize, usize)| size.wrapping_sub(1).wrapping_mul(stride);
    span.wrapping_sub(reach(old)).wrapping_add(reach(new))
}
