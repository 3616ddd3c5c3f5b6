//! Diagonals and sliding windows.

use crate::{
    Error, Layout, Quantity, Result, Shape, Strides, bytes::MAX_BYTES, dims::Dims, strides::next_stride,
    views::wrap_dim,
};

impl Layout {
    /// Returns the diagonal of each matrix along `dim1` and `dim2` as a new last dimension. A positive
    /// `offset` selects the diagonal `offset` columns (along `dim2`) to the right of the main one, a negative
    /// one `-offset` rows (along `dim1`) below it.
    ///
    /// `[.., r, .., c, ..]` becomes `[.., .., .., d]`, where `d` is the length of the diagonal: 0 if it is
    /// outside the matrix.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let matrix = Layout::contiguous(Shape::new(&[3, 4])?);
    /// let above = matrix.diagonal(1, 0, 1)?;
    /// assert_eq!((above.shape()[0], above.strides()[0], above.offset()), (3, 5, 1));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`], [`Error::RepeatedDim`] if both dimensions are the same; [`Error::Overflow`]
    /// for a layout without elements if the offset would exceed any storage.
    pub fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Self> {
        let (rows, columns) = (wrap_dim(dim1, self.ndim())?, wrap_dim(dim2, self.ndim())?);
        if rows == columns {
            return Err(Error::RepeatedDim { dim: rows });
        }
        let distance = offset.unsigned_abs();
        let (down, right) = if offset < 0 { (distance, 0) } else { (0, distance) };
        let left = |dim: usize, dropped: usize| self.shape()[dim].saturating_sub(dropped);
        let length = left(rows, down).min(left(columns, right));
        let (row, column) = (self.strides()[rows], self.strides()[columns]);
        let skipped = match length {
            0 => Some(0), // Inside the matrix or not, the offset does not change.
            _ => down.checked_mul(row).zip(right.checked_mul(column)).and_then(|(a, b)| a.checked_add(b)),
        };
        let first = skipped
            .and_then(|skipped| skipped.checked_add(self.offset()))
            .ok_or(Error::Overflow { quantity: Quantity::ElementSpan })?;
        // This saturates only if the diagonal has at most one element.
        let along = row.saturating_add(column).min(MAX_BYTES);
        let strides = Strides::from_dims(merged(self.strides(), rows, columns, along));
        // A layout without elements stays without: the dimension of size 0 remains, or makes the diagonal
        // empty.
        let shape = Shape::from_dims(merged(self.shape(), rows, columns, length));
        Self::new(shape, strides, first)
    }

    /// Returns the windows of `size` indices along a dimension, `step` apart; the indices in a window form a
    /// new last dimension.
    ///
    /// `[.., n, ..]` becomes `[.., ⌊(n − size) / step⌋ + 1, .., size]`; a scalar counts as `n = 1` and
    /// becomes `[size]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let row = Layout::contiguous(Shape::new(&[7])?);
    /// let windows = row.unfold(0, 3, 2)?; // 0 1 2, 2 3 4, 4 5 6
    /// assert_eq!((windows.shape().as_slice(), windows.strides().as_slice()), (&[3, 3][..], &[2, 1][..]));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`], [`Error::WindowTooLarge`], [`Error::ZeroStep`]; [`Error::Overflow`] if the
    /// total number of elements in the windows does not fit.
    pub fn unfold(&self, dim: isize, size: usize, step: usize) -> Result<Self> {
        let dim = wrap_dim(dim, self.ndim())?;
        let scalar = self.ndim() == 0;
        let (length, stride) = if scalar { (1, 1) } else { (self.shape()[dim], self.strides()[dim]) };
        let Some(rest) = length.checked_sub(size) else {
            return Err(Error::WindowTooLarge { window: size, dim, size: length });
        };
        let Some(steps) = rest.checked_div(step) else { return Err(Error::ZeroStep) };
        let mut sizes = appended(self.shape(), size);
        let mut strides = appended(self.strides(), stride);
        if !scalar {
            sizes.as_mut_slice()[dim] = steps + 1;
            // This saturates only if there is one window.
            strides.as_mut_slice()[dim] = next_stride(stride, step);
        }
        Self::new(Shape::new(sizes.as_slice())?, Strides::from_dims(strides), self.offset())
    }
}

/// Returns the values of all dimensions except `a` and `b`, followed by `joint`.
fn merged(values: &[usize], a: usize, b: usize, joint: usize) -> Dims {
    let mut kept = (0..values.len()).filter(|&dim| dim != a && dim != b).map(|dim| values[dim]);
    Dims::from_fn(values.len() - 1, |_| kept.next().unwrap_or(joint))
}

/// Returns the values of all dimensions followed by `last`.
fn appended(values: &[usize], last: usize) -> Dims {
    Dims::from_fn(values.len() + 1, |dim| values.get(dim).copied().unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(sizes).unwrap())
    }

    #[test]
    fn diagonals_on_and_off_the_matrix() {
        let cube = layout(&[2, 3, 4]);
        let of = |offset| {
            let view = cube.diagonal(offset, 2, -2).unwrap();
            (view.shape()[1], view.strides()[1], view.offset())
        };
        assert_eq!(of(0), (3, 5, 0));
        assert_eq!(of(2), (1, 5, 8));
        assert_eq!(of(-3), (1, 5, 3));
        assert_eq!([3, -4, isize::MAX, isize::MIN].map(of), [(0, 5, 0); 4]);
        assert_eq!(cube.diagonal(0, 1, -2), Err(Error::RepeatedDim { dim: 1 }));
        assert_eq!(layout(&[]).diagonal(0, 0, -1), Err(Error::RepeatedDim { dim: 0 }));
        assert_eq!(layout(&[3]).diagonal(0, 0, 1), Err(Error::DimOutOfRange { dim: 1, ndim: 1 }));
    }

    #[test]
    fn windows_of_a_scalar_and_of_nothing() {
        assert_eq!(layout(&[]).unfold(0, 1, 1).unwrap(), layout(&[1]));
        assert_eq!(layout(&[]).unfold(-1, 0, 3).unwrap().shape(), &[0]);
        assert_eq!(layout(&[0]).unfold(0, 0, 1).unwrap().shape(), &[1, 0]);
        assert_eq!(layout(&[4]).unfold(0, 0, 2).unwrap().shape(), &[3, 0]);
    }

    #[test]
    fn windows_have_to_fit_and_move() {
        assert_eq!(
            layout(&[2, 3]).unfold(1, 4, 1),
            Err(Error::WindowTooLarge { window: 4, dim: 1, size: 3 })
        );
        assert_eq!(layout(&[2, 3]).unfold(1, 2, 0), Err(Error::ZeroStep));
        let once = layout(&[2, 3]).unfold(1, 2, usize::MAX).unwrap();
        assert_eq!((once.shape().as_slice(), once.strides()[1]), (&[2, 1, 2][..], MAX_BYTES));
        let many = Layout::new(Shape::new(&[MAX_BYTES]).unwrap(), Strides::new(&[0]).unwrap(), 0).unwrap();
        let overflow = Error::Overflow { quantity: Quantity::ElementCount };
        assert_eq!(many.unfold(0, MAX_BYTES / 2, 1), Err(overflow));
    }
}
