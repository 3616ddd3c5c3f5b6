//! Checked byte arithmetic.
//!
//! Every product and sum between a user's shape and an allocator is computed here, so overflow is a typed
//! error and never a small allocation for a large tensor. Counts are limited to [`MAX_BYTES`], the largest
//! span of a Rust object or a pointer offset.

use crate::{Error, Quantity, Result};

/// The largest byte or element count that any function here returns: `isize::MAX`.
pub const MAX_BYTES: usize = isize::MAX.unsigned_abs();

/// Returns the number of elements of a shape with these sizes: 1 for an empty list, 0 if any size is 0.
///
/// # Errors
/// [`Error::Overflow`] above [`MAX_BYTES`].
#[inline]
pub fn numel(sizes: &[usize]) -> Result<usize> {
    match sizes.iter().try_fold(1, |product: usize, &size| product.checked_mul(size)) {
        Some(product) if product <= MAX_BYTES => Ok(product),
        _ if sizes.contains(&0) => Ok(0),
        _ => Err(Error::Overflow { quantity: Quantity::ElementCount }),
    }
}

/// Returns the number of bytes that `numel` elements of `itemsize` bytes take.
///
/// # Errors
/// [`Error::Overflow`] above [`MAX_BYTES`].
#[inline]
pub const fn checked_bytes(numel: usize, itemsize: usize) -> Result<usize> {
    bounded(numel.checked_mul(itemsize), Quantity::ByteCount)
}

/// Returns the sum of two byte counts, or of an offset and a length.
///
/// # Errors
/// [`Error::Overflow`] above [`MAX_BYTES`].
#[inline]
pub const fn checked_add(a: usize, b: usize) -> Result<usize> {
    bounded(a.checked_add(b), Quantity::ByteSum)
}

/// Returns the smallest multiple of `granule` that is at least `bytes`; with a `granule` of 0, returns
/// `bytes`.
///
/// For powers of two, [`Alignment::round_up`](crate::Alignment::round_up) is cheaper.
///
/// # Errors
/// [`Error::Overflow`] above [`MAX_BYTES`].
#[inline]
pub const fn round_up(bytes: usize, granule: usize) -> Result<usize> {
    let rounded = if granule == 0 { Some(bytes) } else { bytes.checked_next_multiple_of(granule) };
    bounded(rounded, Quantity::RoundedBytes)
}

#[inline]
const fn bounded(value: Option<usize>, quantity: Quantity) -> Result<usize> {
    match value {
        Some(value) if value <= MAX_BYTES => Ok(value),
        _ => Err(Error::Overflow { quantity }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn overflow(quantity: Quantity) -> Result<usize> {
        Err(Error::Overflow { quantity })
    }

    #[test]
    fn element_counts() {
        assert_eq!(numel(&[]), Ok(1));
        assert_eq!(numel(&[2, 3, 4]), Ok(24));
        assert_eq!(numel(&[usize::MAX, usize::MAX, 0]), Ok(0));
        assert_eq!(numel(&[MAX_BYTES]), Ok(MAX_BYTES));
        assert_eq!(numel(&[MAX_BYTES, 2]), overflow(Quantity::ElementCount));
        assert_eq!(numel(&[usize::MAX, 2]), overflow(Quantity::ElementCount));
    }

    #[test]
    fn byte_counts() {
        assert_eq!(checked_bytes(10, 4), Ok(40));
        assert_eq!(checked_bytes(0, 16), Ok(0));
        assert_eq!(checked_bytes(MAX_BYTES / 4 + 1, 4), overflow(Quantity::ByteCount));
        assert_eq!(checked_add(MAX_BYTES, 0), Ok(MAX_BYTES));
        assert_eq!(checked_add(MAX_BYTES, 1), overflow(Quantity::ByteSum));
    }

    #[test]
    fn rounding() {
        assert_eq!(round_up(1, 512), Ok(512));
        assert_eq!(round_up(10, 3), Ok(12));
        assert_eq!(round_up(7, 0), Ok(7));
        assert_eq!(round_up(MAX_BYTES, 512), overflow(Quantity::RoundedBytes));
    }
}
