//! A short list of numbers, one for each dimension, without the heap for up to five.
//!
//! Making a view copies two of these. A fixed-size array with a length beside it copies as six words and no call,
//! which is why this is neither a `Vec` nor a general small vector. The length is a whole word because a copy of words
//! that follows the write of a single byte has to wait for it.

use alloc::boxed::Box;
use core::array;

use crate::{Error, Quantity, Result, bytes::MAX_BYTES};

/// Dimensions held inline.
pub(crate) const INLINE_DIMS: usize = 5;

/// Values of the dimensions, outermost first.
///
/// Methods that make a changed copy choose each value on its own instead of copying and then writing one: a value that
/// is written into a fresh copy delays whoever moves the copy on, which everybody does.
pub(crate) enum Dims {
    /// The first `len` of `values`; those behind are 1, so that a product needs no length.
    Inline { len: InlineLen, values: [usize; INLINE_DIMS] },
    /// More than fit inline, never fewer.
    Heap(Box<[usize]>),
}

/// A number up to `INLINE_DIMS`, as wide as the values: the variant of [`Dims`] hides in its unused patterns, and
/// slicing needs no bounds check.
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
    pub(crate) const fn get(self) -> usize {
        self as usize
    }
}

impl Dims {
    /// `len` zeros.
    #[inline]
    pub(crate) fn zeros(len: usize) -> Self {
        match InlineLen::new(len) {
            Some(inline) => {
                Self::Inline { len: inline, values: array::from_fn(|dim| usize::from(dim >= len)) }
            }
            None => Self::Heap(alloc::vec![0; len].into_boxed_slice()),
        }
    }

    /// The values that `value` gives for each dimension.
    #[inline]
    pub(crate) fn try_from_fn(len: usize, mut value: impl FnMut(usize) -> Result<usize>) -> Result<Self> {
        match InlineLen::new(len) {
            Some(inline) => {
                let mut values = [1; INLINE_DIMS];
                // As many rounds each time, so that the values can stay in registers.
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

    /// The values, and behind those that are inline ones up to a fixed number.
    #[inline]
    pub(crate) fn padded(&self) -> &[usize] {
        match self {
            Self::Inline { values, .. } => values,
            Self::Heap(values) => values,
        }
    }

    /// Row-major strides for these sizes; `next` is the stride of the next dimension, from that of one and its size.
    #[inline(always)]
    pub(crate) fn row_major(&self, next: impl Fn(usize, usize) -> usize) -> Self {
        match self {
            Self::Inline { len, values } => {
                // As many rounds each time (see `try_from_fn`): sizes that are not there are 1 and change nothing.
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

    /// The value that `value` gives for each dimension.
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

    /// All values but one.
    #[inline(always)]
    pub(crate) fn without(&self, dim: usize) -> Self {
        match self {
            Self::Inline { len, values } => {
                let [_, next @ ..] = values;
                let next = |at: usize| next.get(at).copied().unwrap_or(1);
                let values = array::from_fn(|at| if at < dim { values[at] } else { next(at) });
                Self::Inline { len: len.one_less(), values }
            }
            Self::Heap(values) => match without_on_heap(values, dim) {
                Ok(values) => Self::Inline { len: InlineLen::Five, values },
                Err(values) => Self::Heap(values),
            },
        }
    }

    /// The product of all values, wrapped where it does not fit.
    #[inline(always)]
    pub(crate) fn wrapping_product(&self) -> usize {
        let product =
            |values: &[usize]| values.iter().fold(1, |product: usize, &value| product.wrapping_mul(value));
        match self {
            Self::Inline { values, .. } => product(values),
            Self::Heap(values) => product(values),
        }
    }

    /// Whether there is nothing on the heap.
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

// The uncommon case, out of the way of the common one.

#[cold]
fn copied_on_heap(values: &[usize]) -> Box<[usize]> {
    values.into()
}

#[cold]
fn without_on_heap(values: &[usize], dim: usize) -> Result<[usize; INLINE_DIMS], Box<[usize]>> {
    let kept = |at: usize| values[if at < dim { at } else { at + 1 }];
    match values.len() - 1 {
        INLINE_DIMS => Ok(array::from_fn(kept)),
        len => Err((0..len).map(kept).collect()),
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Integers that sizes and strides are written in: the primitive ones of 32 and 64 bits, and `usize` and `isize`.
///
/// PyTorch and file formats say `i64`, Rust says `usize`, and a bare literal is an `i32`; all are taken, and checked.
pub trait DimInt: sealed::Sealed + Copy {
    /// The value, if it is a `usize`.
    #[doc(hidden)]
    fn to_usize(self) -> Option<usize>;

    /// The value, if it is an `i64`.
    #[doc(hidden)]
    fn to_i64(self) -> Option<i64>;
}

macro_rules! dim_int {
    ($($int:ty),+) => {$(
        impl sealed::Sealed for $int {}

        impl DimInt for $int {
            #[inline]
            fn to_usize(self) -> Option<usize> {
                self.try_into().ok()
            }

            #[inline]
            fn to_i64(self) -> Option<i64> {
                self.try_into().ok()
            }
        }
    )+};
}

dim_int!(i32, i64, isize, u32, u64, usize);

/// `value` as a size or stride: `negative` makes the error for a negative one, `quantity` names one that is too large.
#[inline]
pub(crate) fn to_dim<D: DimInt>(
    value: D,
    quantity: Quantity,
    negative: impl FnOnce(i64) -> Error,
) -> Result<usize> {
    match value.to_usize() {
        Some(size) if size <= MAX_BYTES => Ok(size),
        _ => Err(match value.to_i64() {
            Some(value) if value < 0 => negative(value),
            _ => Error::Overflow { quantity },
        }),
    }
}

/// The traits that both newtypes over [`Dims`] have: a read-only slice in every way but the name.
macro_rules! dims_newtype {
    ($name:ident) => {
        impl $name {
            /// Values of which it is known that they keep this type's promises.
            #[inline]
            pub(crate) const fn from_dims(dims: Dims) -> Self {
                Self(dims)
            }

            /// The values, to be changed to others that keep this type's promises.
            #[inline]
            pub(crate) const fn dims_mut(&mut self) -> &mut Dims {
                &mut self.0
            }

            /// The values, to make others from.
            #[inline]
            pub(crate) const fn dims(&self) -> &Dims {
                &self.0
            }

            /// The values, outermost dimension first.
            #[inline]
            #[must_use]
            pub fn as_slice(&self) -> &[usize] {
                self.0.as_slice()
            }

            /// The number of dimensions.
            #[inline]
            #[must_use]
            pub fn ndim(&self) -> usize {
                self.as_slice().len()
            }
        }

        impl core::ops::Deref for $name {
            type Target = [usize];

            #[inline]
            fn deref(&self) -> &[usize] {
                self.as_slice()
            }
        }

        impl AsRef<[usize]> for $name {
            fn as_ref(&self) -> &[usize] {
                self.as_slice()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_slice() == other.as_slice()
            }
        }

        impl Eq for $name {}

        impl<const N: usize> PartialEq<[usize; N]> for $name {
            fn eq(&self, other: &[usize; N]) -> bool {
                self.as_slice() == other
            }
        }

        impl PartialEq<[usize]> for $name {
            fn eq(&self, other: &[usize]) -> bool {
                self.as_slice() == other
            }
        }

        impl core::hash::Hash for $name {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                self.as_slice().hash(state);
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.as_slice().fmt(f)
            }
        }

        impl core::fmt::Display for $name {
            /// As in `[2, 3]`.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:?}", self.as_slice())
            }
        }
    };
}

pub(crate) use dims_newtype;

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
}
