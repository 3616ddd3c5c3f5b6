//! [`KernelInteger`]: the integers of the arrays that kernels read.

use crate::{KvError, Result};

mod sealed {
    pub trait Sealed {}
}

/// An integer of an array that kernels read: `i32` and `i64`, as most engines have them, `u32`, or `u64`.
pub trait KernelInteger: sealed::Sealed + Copy {
    /// Returns the integer; `None` if it is out of the type's range.
    #[doc(hidden)]
    fn from_u64(value: u64) -> Option<Self>;
}

macro_rules! kernel_integers {
    ($($integer:ty),*) => {$(
        impl sealed::Sealed for $integer {}

        impl KernelInteger for $integer {
            #[inline]
            fn from_u64(value: u64) -> Option<Self> {
                Self::try_from(value).ok()
            }
        }
    )*};
}

kernel_integers!(i32, i64, u32, u64);

/// Checks that every value below `end` is in the type's range.
pub(super) fn check_range<I: KernelInteger>(end: u64, what: &'static str) -> Result<()> {
    let is_in_range = I::from_u64(end.saturating_sub(1)).is_some();
    is_in_range.then_some(()).ok_or(KvError::OutOfRange { what })
}

pub(super) fn entry<I: KernelInteger>(value: u64, what: &'static str) -> Result<I> {
    I::from_u64(value).ok_or(KvError::OutOfRange { what })
}

#[cfg(test)]
mod tests {
    use super::check_range;

    #[test]
    fn a_range_ends_with_its_type() {
        let end = 1_u64 << 31;
        assert!(check_range::<i32>(0, "none").is_ok() && check_range::<i32>(end, "ids").is_ok());
        assert!(check_range::<i32>(end + 1, "ids").is_err() && check_range::<u32>(end + 1, "ids").is_ok());
        assert!(
            check_range::<u32>(2 * end + 1, "ids").is_err() && check_range::<i64>(2 * end + 1, "ids").is_ok()
        );
    }
}
