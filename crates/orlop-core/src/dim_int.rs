//! [`DimInt`]: the integer types accepted as sizes and strides.
//!
//! The public functions take any of them and convert to a checked `usize`.

use crate::{Error, Quantity, Result, bytes::MAX_BYTES};

mod sealed {
    pub trait Sealed {}
}

/// An integer type that sizes and strides can be given in: the primitive types of 32 and 64 bits, `usize` and
/// `isize`.
///
/// PyTorch and file formats use `i64`, Rust uses `usize`, and a bare literal is an `i32`. Values are
/// range-checked.
pub trait DimInt: sealed::Sealed + Copy {
    /// Returns the value as a `usize`, or `None` if it does not fit.
    #[doc(hidden)]
    fn to_usize(self) -> Option<usize>;

    /// Returns the value as an `i64`, or `None` if it does not fit.
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

/// Converts `value` to a size or stride. `negative` builds the error for a negative value; `quantity` names
/// the value in the overflow error.
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
