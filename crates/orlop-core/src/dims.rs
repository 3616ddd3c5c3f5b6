//! [`Dims`]: one number per dimension, inline for up to five dimensions.
//!
//! Making a view copies two of these. A fixed-size array with its length copies as six words without a call,
//! unlike `Vec` or a general small vector. The length takes a full word: a word-wise copy that follows a
//! one-byte store would stall on store forwarding.

use alloc::{boxed::Box, vec::Vec};
use core::{array, mem};

use crate::Result;

/// The number of dimensions stored inline.
pub(crate) const INLINE_DIMS: usize = 5;

/// One value per dimension, outermost first.
///
/// Methods that make a changed copy select each value instead of copying all and overwriting one: a store
/// into a fresh copy delays the load of the next copy (store forwarding).
pub(crate) enum Dims {
    /// The first `len` of `values` are used. The rest are 1, so a product can run over all of them.
    Inline { len: InlineLen, values: [usize; INLINE_DIMS] },
    /// More dimensions than fit inline.
    Heap(Box<[usize]>),
}

/// A number up to `INLINE_DIMS`, as wide as the values. Its unused bit patterns hold the variant of [`Dims`],
/// and slicing needs no bounds check.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum InlineLen {
    Zero,
    One,
    Two,
    Three,
    Four,
    Five,
}

impl InlineLen {
    #[inline]
    const fn new(len: usize) -> Option<Self> {
        Some(match len {
            0 => Self::Zero,
            1 => Self::One,
            2 => Self::Two,
            3 => Self::Three,
            4 => Self::Four,
            5 => Self::Five,
            _ => return None,
        })
    }

    #[inline]
    const fn one_less(self) -> Self {
        match self {
            Self::Zero | Self::One => Self::Zero,
            Self::Two => Self::One,
            Self::Three => Self::Two,
            Self::Four => Self::Three,
            Self::Five => Self::Four,
        }
    }

    #[inline]
    const fn one_more(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Two,
            Self::Two => Self::Three,
            Self::Three => Self::Four,
            Self::Four | Self::Five => Self::Five,
        }
    }

    #[inline]
    pub(crate) const fn get(self) -> usize {
        self as usize
    }
}

impl Dims {
    /// Creates `len` zeros.
    #[inline]
    pub(crate) fn zeros(len: usize) -> Self {
        match InlineLen::new(len) {
            Some(inline) => {
                Self::Inline { len: inline, values: array::from_fn(|dim| usize::from(dim >= len)) }
            }
            None => Self::Heap(alloc::vec![0; len].into_boxed_slice()),
        }
    }

    /// Creates the values `value(0)`, `value(1)`, … for `len` dimensions.
    #[inline]
    pub(crate) fn try_from_fn(len: usize, mut value: impl FnMut(usize) -> Result<usize>) -> Result<Self> {
        match InlineLen::new(len) {
            Some(inline) => {
                let mut values = [1; INLINE_DIMS];
                // A constant trip count lets the values stay in registers.
                for (dim, slot) in values.iter_mut().enumerate() {
                    if dim < inline.get() {
                        *slot = value(dim)?;
                    }
                }
                Ok(Self::Inline { len: inline, values })
            }
            None => (0..len).map(value).collect::<Result<_>>().map(Self::Heap),
        }
    }

    /// Creates two lists at once from `values(dim)`, called from the last dimension to the first.
    #[inline(always)]
    pub(crate) fn pair_from_last(
        len: usize,
        mut values: impl FnMut(usize) -> Result<(usize, usize)>,
    ) -> Result<(Self, Self)> {
        match InlineLen::new(len) {
            Some(inline) => {
                let mut pair = ([1; INLINE_DIMS], [1; INLINE_DIMS]);
                // See `try_from_fn`.
                for (dim, (a, b)) in pair.0.iter_mut().zip(&mut pair.1).enumerate().rev() {
                    if dim < inline.get() {
                        (*a, *b) = values(dim)?;
                    }
                }
                Ok((
                    Self::Inline { len: inline, values: pair.0 },
                    Self::Inline { len: inline, values: pair.1 },
                ))
            }
            None => pair_on_heap(len, values),
        }
    }

    /// Returns all values. For an inline list, that includes the padding of ones.
    #[inline]
    pub(crate) fn padded(&self) -> &[usize] {
        match self {
            Self::Inline { values, .. } => values,
            Self::Heap(values) => values,
        }
    }

    /// Returns row-major strides for these sizes. `next(stride, size)` is the stride of the next outer
    /// dimension.
    #[inline(always)]
    pub(crate) fn row_major(&self, next: impl Fn(usize, usize) -> usize) -> Self {
        match self {
            Self::Inline { len, values } => {
                // A constant trip count (see `try_from_fn`): padding sizes are 1 and change nothing.
                let (mut strides, mut stride) = ([1; INLINE_DIMS], 1);
                for (slot, &size) in strides.iter_mut().zip(values).rev() {
                    *slot = stride;
                    stride = next(stride, size);
                }
                Self::Inline { len: *len, values: strides }
            }
            Self::Heap(sizes) => {
                let mut strides = Self::zeros(sizes.len());
                let mut stride = 1;
                for (slot, &size) in strides.as_mut_slice().iter_mut().zip(sizes).rev() {
                    *slot = stride;
                    stride = next(stride, size);
                }
                strides
            }
        }
    }

    /// Creates the values `value(0)`, `value(1)`, … for `len` dimensions.
    #[inline]
    pub(crate) fn from_fn(len: usize, mut value: impl FnMut(usize) -> usize) -> Self {
        match InlineLen::new(len) {
            Some(inline) => Self::Inline {
                len: inline,
                values: array::from_fn(|dim| if dim < len { value(dim) } else { 1 }),
            },
            None => Self::Heap((0..len).map(value).collect()),
        }
    }

    /// Removes the value of dimension `dim`.
    #[inline(always)]
    pub(crate) fn remove(&mut self, dim: usize) {
        match self {
            Self::Inline { len, values } => {
                // Selecting each value avoids a loop that depends on `dim`: the values can stay in registers.
                let [_, next @ ..] = *values;
                let next = |at: usize| next.get(at).copied().unwrap_or(1);
                *values = array::from_fn(|at| if at < dim { values[at] } else { next(at) });
                *len = len.one_less();
            }
            Self::Heap(values) => *self = without_on_heap(mem::take(values).into_vec(), dim),
        }
    }

    /// Inserts `value` before dimension `dim`, or at the end.
    #[inline(always)]
    pub(crate) fn insert(&mut self, dim: usize, value: usize) {
        match self {
            Self::Inline { len, values } if len.get() < INLINE_DIMS => {
                let old = *values;
                let before = |at: usize| at.checked_sub(1).map_or(1, |before| old[before]);
                *values = array::from_fn(|at| match at {
                    _ if at < dim => old[at],
                    _ if at == dim => value,
                    _ => before(at),
                });
                *len = len.one_more();
            }
            Self::Inline { values, .. } => *self = inserted_on_heap(values.to_vec(), dim, value),
            Self::Heap(values) => *self = inserted_on_heap(mem::take(values).into_vec(), dim, value),
        }
    }

    /// Replaces the value of dimension `dim`.
    #[inline(always)]
    pub(crate) fn set(&mut self, dim: usize, value: usize) {
        match self {
            // See `remove`.
            Self::Inline { values, .. } => {
                *values = array::from_fn(|at| if at == dim { value } else { values[at] });
            }
            Self::Heap(values) => values[dim] = value,
        }
    }

    /// Reorders the values: value `i` becomes value `order[i]`.
    #[inline(always)]
    pub(crate) fn reorder(&mut self, order: &Self) {
        match (self, order) {
            (Self::Inline { values, .. }, Self::Inline { len, values: order }) => {
                let picked = |place: usize| values.get(order[place]).copied().unwrap_or(1);
                *values = array::from_fn(|place| if place < len.get() { picked(place) } else { 1 });
            }
            (values, order) => reorder_many(values, order.as_slice()),
        }
    }

    /// Returns the product of all values, wrapping on overflow.
    #[inline(always)]
    pub(crate) fn wrapping_product(&self) -> usize {
        let product =
            |values: &[usize]| values.iter().fold(1, |product: usize, &value| product.wrapping_mul(value));
        match self {
            Self::Inline { values, .. } => product(values),
            Self::Heap(values) => product(values),
        }
    }

    /// Returns `true` if the values are stored inline.
    #[inline]
    pub(crate) const fn is_inline(&self) -> bool {
        matches!(self, Self::Inline { .. })
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[usize] {
        match self {
            Self::Inline { len, values } => &values[..len.get()],
            Self::Heap(values) => values,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [usize] {
        match self {
            Self::Inline { len, values } => &mut values[..len.get()],
            Self::Heap(values) => values,
        }
    }
}

impl Clone for Dims {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Inline { len, values } => Self::Inline { len: *len, values: *values },
            Self::Heap(values) => Self::Heap(copied_on_heap(values)),
        }
    }
}

// The heap cases, kept out of the inlined path.

#[cold]
fn copied_on_heap(values: &[usize]) -> Box<[usize]> {
    values.into()
}

#[cold]
#[inline(never)]
fn pair_on_heap(len: usize, mut values: impl FnMut(usize) -> Result<(usize, usize)>) -> Result<(Dims, Dims)> {
    let mut pair = (alloc::vec![1; len].into_boxed_slice(), alloc::vec![1; len].into_boxed_slice());
    for (dim, (a, b)) in pair.0.iter_mut().zip(&mut pair.1).enumerate().rev() {
        (*a, *b) = values(dim)?;
    }
    Ok((Dims::Heap(pair.0), Dims::Heap(pair.1)))
}

#[cold]
fn without_on_heap(mut values: Vec<usize>, dim: usize) -> Dims {
    values.remove(dim);
    match <[usize; INLINE_DIMS]>::try_from(values) {
        Ok(values) => Dims::Inline { len: InlineLen::Five, values },
        Err(values) => Dims::Heap(values.into_boxed_slice()),
    }
}

#[cold]
fn inserted_on_heap(mut values: Vec<usize>, dim: usize, value: usize) -> Dims {
    values.reserve_exact(1);
    values.insert(dim, value);
    Dims::Heap(values.into_boxed_slice())
}

#[cold]
fn reorder_many(values: &mut Dims, order: &[usize]) {
    *values = Dims::from_fn(order.len(), |place| values.as_slice()[order[place]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    static_assertions::const_assert_eq!(size_of::<Dims>(), size_of::<usize>() * (INLINE_DIMS + 1));

    #[test]
    fn five_are_inline_and_six_are_not() {
        for len in 0..=8 {
            let dims = Dims::try_from_fn(len, Ok).unwrap();
            assert_eq!(matches!(dims, Dims::Inline { .. }), len <= INLINE_DIMS);
            assert!(dims.as_slice().iter().copied().eq(0..len));
            assert_eq!(Dims::zeros(len).as_slice().len(), len);
        }
    }
    #[test]
    fn values_come_and_go() {
        for len in 0..8 {
            for at in 0..=len {
                let mut dims = Dims::from_fn(len, |dim| dim + 10);
                dims.insert(at, 7);
                assert_eq!(dims.is_inline(), len < INLINE_DIMS);
                assert_eq!((dims.as_slice().len(), dims.as_slice()[at]), (len + 1, 7));
                dims.set(at, 8);
                assert_eq!(dims.as_slice()[at], 8);
                dims.remove(at);
                assert_eq!(dims.is_inline(), len <= INLINE_DIMS);
                assert!(dims.as_slice().iter().copied().eq(10..10 + len));
                assert_eq!(dims.wrapping_product(), (10..10 + len).product(), "ones behind");
            }
        }
    }

    #[test]
    fn values_in_another_order() {
        for len in 0..8 {
            let mut dims = Dims::from_fn(len, |dim| dim + 10);
            dims.reorder(&Dims::from_fn(len, |dim| len - 1 - dim));
            assert!(dims.as_slice().iter().copied().eq((10..10 + len).rev()));
            let (a, b) = Dims::pair_from_last(len, |dim| Ok((dim, len - dim))).unwrap();
            assert!(
                a.as_slice().iter().copied().eq(0..len) && b.as_slice().iter().copied().eq((1..=len).rev())
            );
        }
    }
}
