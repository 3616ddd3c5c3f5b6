//! Views: functions from a layout to another layout over the same storage.
//!
//! Slicing, reordering, expanding and regrouping dimensions move no element. Results equal PyTorch's, stride
//! for stride, in the corner cases too: the strides of dimensions of size 1, scalars, and which arguments are
//! errors.
//!
//! Dimensions count from 0, or from the end with -1, -2 and so on; a scalar accepts 0 and -1 where the
//! operation does not index the dimension. A view of a checked layout stays within its range, so views need
//! no new bounds check, except [`Layout::as_strided`].
//!
//! Most operations change a layout in place; those that return a new layout change a copy. The common ones
//! are always inlined: a call would return 128 bytes through memory, word by word, and a wider copy of them
//! would stall on store forwarding for longer than the computation takes.

mod dtype;
mod expand;
mod indexing;
mod order;
mod regroup;
mod split;
mod windows;

pub use expand::broadcast_shapes;
pub use regroup::Reshaped;
pub use split::Pieces;

use crate::{Error, Layout, Result, dims::Dims};

/// Converts `dim`, which may be negative, to a dimension. A scalar counts as having one.
#[inline]
pub(crate) fn wrap_dim(dim: isize, ndim: usize) -> Result<usize> {
    let named = ndim.max(1);
    let wrapped = if dim < 0 { named.wrapping_add_signed(dim) } else { dim.unsigned_abs() };
    if wrapped < named { Ok(wrapped) } else { Err(Error::DimOutOfRange { dim, ndim }) }
}

/// Converts a list of dimensions without duplicates.
#[inline(always)]
fn distinct_dims(dims: &[isize], ndim: usize) -> Result<Dims> {
    Dims::try_from_fn(dims.len(), |position| {
        let dim = wrap_dim(dims[position], ndim)?;
        // The lists are too short for a set to pay off.
        let same = |&other: &isize| wrap_dim(other, ndim) == Ok(dim);
        if dims[..position].iter().any(same) { Err(Error::RepeatedDim { dim }) } else { Ok(dim) }
    })
}

impl Layout {
    /// Converts `dim` to a dimension that exists: a scalar has none.
    #[inline]
    fn existing_dim(&self, dim: isize) -> Result<usize> {
        if self.ndim() == 0 { Err(Error::NoDimensions) } else { wrap_dim(dim, self.ndim()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_count_from_both_ends() {
        assert_eq!([-3, -1, 0, 2].map(|dim| wrap_dim(dim, 3)), [0, 2, 0, 2].map(Ok));
        assert_eq!([-1, 0].map(|dim| wrap_dim(dim, 0)), [Ok(0); 2]);
        for (dim, ndim) in [(3, 3), (-4, 3), (1, 0), (-2, 0), (isize::MIN, 2), (isize::MAX, 2)] {
            assert_eq!(wrap_dim(dim, ndim), Err(Error::DimOutOfRange { dim, ndim }));
        }
    }

    #[test]
    fn each_dimension_is_named_once() {
        assert_eq!(distinct_dims(&[-1, 0], 3).unwrap().as_slice(), [2, 0]);
        assert_eq!(distinct_dims(&[1, -2], 3).err(), Some(Error::RepeatedDim { dim: 1 }));
        assert_eq!(distinct_dims(&[0, -1], 0).err(), Some(Error::RepeatedDim { dim: 0 }));
        assert_eq!(distinct_dims(&[0, 3], 3).err(), Some(Error::DimOutOfRange { dim: 3, ndim: 3 }));
    }
}
