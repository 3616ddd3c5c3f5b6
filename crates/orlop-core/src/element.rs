//! Rust types that tensors hold.
//!
//! [`Element`] is the compile-time side of [`DType`]: the two are one-to-one, which is what lets safe code hand out a
//! `&[T]` over a tensor's bytes after comparing one byte. The trait is sealed because that claim is the crate's.

use core::fmt::Debug;

use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};

use crate::{DType, scalar::Convert};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of some [`DType`].
///
/// All bits zero is a valid element and means zero. Elements have no padding, so they can be read as bytes. The
/// other way round, every bit pattern is an element for all types but `bool`, where only the bytes 0 and 1 are: bytes
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
    /// The dtype whose elements are of this type.
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
