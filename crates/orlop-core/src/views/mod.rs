//! Views: from one layout to another over the same storage.
//!
//! Cutting, reordering, stretching and regrouping dimensions moves no element. Each is a function from a layout to a
//! layout, here, once, so that whoever holds memory only has to keep the storage alive. Results are PyTorch's, stride
//! for stride, in the corners too: which strides dimensions of size 1 get, what a scalar allows, what is refused.
//!
//! Dimensions count from 0, or from the end with -1, -2 and so on; a scalar answers to 0 and -1 where nothing is done
//! along a dimension. What comes from a checked layout reaches no further than it did, so most views need no new check
//! of bounds; [`Layout::as_strided`] does.
//!
//! Most change a layout in place, and what gives a new one does so to a copy; the common ones are inlined always. A call
//! would hand back its 128 bytes through memory, word by word, and whoever moves them on in larger parts has to wait
//! for the words, longer than they took to compute.

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

/// The dimension meant by `dim`. A scalar counts as having one.
#[inline]
pub(crate) fn wrap_dim(dim: isize, ndim: usize) -> Result<usize> {
    let named = ndim.max(1);
    let wrapped = if dim < 0 { named.wrapping_add_signed(dim) } else { dim.unsigned_abs() };
    if wrapped < named { Ok(wrapped) } else { Err(Error::DimOutOfRange { dim, ndim }) }
}

/// The dimensions meant by a list that names none twice.
#[inline(always)]
fn distinct_dims(dims: &[isize], ndim: usize) -> Result<Dims> {
    Dims::try_from_fn(dims.len(), |position| {
        let dim = wrap_dim(dims[position], ndim)?;
        // Shorter lists than a set would pay for.
        let same = |&other: &isize| wrap_dim(other, ndim) == Ok(dim);
        if dims[..position].iter().any(same) { Err(Error::RepeatedDim { dim }) } else { Ok(dim) }
    })
}

impl Layout {
    /// The dimension meant by `dim`, which has to be there: a scalar has none.
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
