//! In-place changes of a layout, which views apply to a copy.
//!
//! Each change updates the number of elements, the span and the contiguity, and checks once whether the
//! dimensions are on the heap.

use super::{Layout, is_in_a_row};
use crate::{Error, Quantity, Result, Shape, Strides, bytes::MAX_BYTES, dims::Dims, views::wrap_dim};

impl Layout {
    /// Keeps some indices of a dimension. `keep` selects them from the dimension's number, size and stride.
    ///
    /// The kept indices exist and are in order, so the number of elements and the span do not grow.
    ///
    /// # Errors
    /// [`Error::NoDimensions`], [`Error::DimOutOfRange`]; those of `keep`; [`Error::Overflow`] for an offset
    /// beyond [`MAX_BYTES`], which is possible without elements. The layout is then unchanged.
    #[inline(always)]
    pub(crate) fn keep_indices(
        &mut self,
        dim: isize,
        keep: impl FnOnce(usize, usize, usize) -> Result<KeptIndices>,
    ) -> Result<()> {
        let before = (self.offset, self.span);
        // One check for the heap, after which the compiler keeps everything else in registers.
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

    /// Selects one index of a dimension and removes the dimension. `at` selects it from the dimension's
    /// number and size.
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

    /// [`keep_index`](Self::keep_index) after the check for the heap.
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

    /// Sets the number of elements and the span after a change, and updates the contiguity.
    #[inline(always)]
    fn count_part(&mut self, numel: usize, span: usize) {
        self.numel = numel;
        self.span = span;
        // If positions increase from element to element, as in a contiguous layout, they also do in any part
        // of it. That part is contiguous if it has no gaps.
        self.contiguous = span == numel && (self.contiguous || numel == 0 || self.is_in_a_row_now());
        self.check_counts();
    }

    /// Puts the dimensions in this order, which contains each once.
    #[inline(always)]
    pub(crate) fn order_dims(&mut self, order: &Dims) {
        self.shape.dims_mut().reorder(order);
        self.strides.dims_mut().reorder(order);
        // Only a layout without gaps can be contiguous.
        self.contiguous = self.is_empty() || self.span == self.numel && self.is_in_a_row_now();
        self.check_counts();
    }

    /// Swaps two dimensions.
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
            // A swap of two dimensions of size 2 or more ends contiguity. See also `order_dims`.
            let undone = self.contiguous && lead_on;
            self.contiguous = self.is_empty() || !undone && self.span == self.numel && self.is_in_a_row_now();
            self.check_counts();
        }
        Ok(())
    }

    /// Replaces the dimensions. The elements and their order stay, so the counts do not change.
    #[inline(always)]
    pub(crate) fn set_dims(&mut self, shape: Shape, strides: Strides) {
        (self.shape, self.strides) = (shape, strides);
        self.check_counts();
    }

    /// Repeats the elements with strides of 0, to `numel` elements in all; `numel` may be 0.
    #[inline(always)]
    pub(crate) fn repeat(&mut self, shape: Shape, strides: Strides, numel: usize) {
        (self.shape, self.strides) = (shape, strides);
        // A layout that reaches a position twice is not contiguous.
        self.contiguous = numel == 0 || self.contiguous && numel == self.numel;
        self.span = if numel == 0 { 0 } else { self.span };
        self.numel = numel;
        self.check_counts();
    }

    /// Removes a dimension of size 1; the counts do not change.
    #[inline(always)]
    pub(crate) fn remove_dim(&mut self, dim: usize) {
        self.shape.dims_mut().remove(dim);
        self.strides.dims_mut().remove(dim);
        self.check_counts();
    }

    /// Inserts a dimension of size 1 with this stride before `dim`, or at the end; the counts do not change.
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

/// The kept indices of a dimension: `size` indices from `first`, `stride` elements apart. `first` may be one
/// past the last index if `size` is 0.
pub(crate) struct KeptIndices {
    pub(crate) first: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
}

/// Changes a dimension as [`Layout::keep_indices`] does. `sizes` and `strides` may be padded with ones after
/// `ndim` values. Returns the new offset, number of elements and span.
#[inline(always)]
fn keep_among(
    ndim: usize,
    sizes: &mut [usize],
    strides: &mut [usize],
    (offset, span): (usize, usize),
    dim: isize,
    keep: impl FnOnce(usize, usize, usize) -> Result<KeptIndices>,
) -> Result<(usize, usize, usize)> {
    if ndim == 0 {
        return Err(Error::NoDimensions);
    }
    let dim = wrap_dim(dim, ndim)?;
    let (size, stride) = (sizes[dim], strides[dim]);
    let kept = keep(dim, size, stride)?;
    let offset = offset_at(offset, kept.first, stride)?;
    (sizes[dim], strides[dim]) = (kept.size, kept.stride);
    // Fits by the invariant of `Shape`, or is 0.
    let numel = sizes.iter().fold(1, |product: usize, &size| product.wrapping_mul(size));
    let span = span_once(span, (size, stride), (kept.size, kept.stride));
    Ok((offset, numel, if numel == 0 { 0 } else { span }))
}

/// Returns the offset of an index of a dimension with this stride.
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
    keep: impl FnOnce(usize, usize, usize) -> Result<KeptIndices>,
) -> Result<(usize, usize, usize)> {
    keep_among(sizes.len(), sizes, strides, before, dim, keep)
}

/// Swaps two of `ndim` dimensions. Returns whether both have a size of 2 or more, or `None` if they are the
/// same.
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

/// Returns the span after a dimension got a smaller or equal reach. Without elements the result is
/// meaningless.
#[inline]
fn span_once(span: usize, old: (usize, usize), new: (usize, usize)) -> usize {
    // These are terms of the layout's own span if there are elements; if not, the result is not used.
    let reach = |(size, stride): (usize, usize)| size.wrapping_sub(1).wrapping_mul(stride);
    span.wrapping_sub(reach(old)).wrapping_add(reach(new))
}
