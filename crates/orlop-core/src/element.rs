//! [`Element`]: the Rust types of tensor elements.
//!
//! [`Element`] is the compile-time counterpart of [`DType`]. The mapping is one-to-one, so comparing one byte
//! is enough to hand out a `&[T]` over a tensor's bytes. The trait is sealed because safety depends on that
//! mapping.

use core::fmt::Debug;

use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};

use crate::{DType, scalar::Convert};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element type of a [`DType`].
///
/// All zero bits are a valid element, which means zero. Elements have no padding, so they can be read as
/// bytes. Every bit pattern is a valid element, except for `bool`, which allows only the bytes 0 and 1. Bytes
/// of foreign origin are checked (see [`CheckedBitPattern`]) before they are read as `bool`.
pub trait Element:
    sealed::Sealed
    + Convert
    + Copy
    + Debug
    + Default
    + PartialEq
    + Send
    + Sync
    + CheckedBitPattern
    + NoUninit
    + Zeroable
    + 'static
{
    /// The dtype of this element type.
    const DTYPE: DType;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{F8E4M3, dispatch};

    #[test]
    fn dtype_and_type_agree() {
        for dtype in DType::ALL {
            let (size, align, back) = dispatch!(dtype, T => (size_of::<T>(), align_of::<T>(), T::DTYPE));
            assert_eq!((size, align, back), (dtype.size(), dtype.alignment().bytes(), dtype));
        }
    }

    #[test]
    fn foreign_bytes_are_checked() {
        assert!(bytemuck::checked::try_cast_slice::<u8, bool>(&[0, 1, 1]).is_ok());
        assert!(bytemuck::checked::try_cast_slice::<u8, bool>(&[2]).is_err());
        assert!(bytemuck::checked::try_cast_slice::<u8, F8E4M3>(&[0xff, 0]).is_ok());
    }
}
