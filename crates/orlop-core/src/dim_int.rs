//! The integers that sizes and strides come in as.
//!
//! Whoever calls has one type or another; past here there is `usize`, and it was checked.

use crate::{Error, Quantity, Result, bytes::MAX_BYTES};

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
