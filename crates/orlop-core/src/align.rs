//! [`Alignment`]: a power of two, valid by construction.
//!
//! It is stored as an exponent in one byte. Rounding takes two instructions, and no allocator has to reject
//! an `align: 48` again.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::Device;
use crate::{Error, Quantity, Result};

/// A power-of-two number of bytes that addresses and offsets are multiples of.
///
/// ```
/// use orlop_core::Alignment;
///
/// let align = Alignment::new(256)?;
/// assert_eq!(align, Alignment::PLANNED);
/// assert_eq!(align.round_up(257)?, 512);
/// assert_eq!(align.max(Alignment::of::<u64>()).bytes(), 256);
/// # Ok::<(), orlop_core::Error>(())
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Alignment {
    /// Invariant: less than `usize::BITS`, with or without [`UNSPECIFIED`].
    log2: u8,
}

/// The bit of [`Alignment::UNSPECIFIED`].
const UNSPECIFIED: u8 = 0x80;

impl Alignment {
    /// One byte: every address is aligned.
    pub const ONE: Self = Self { log2: 0 };

    /// 64 bytes, a cache line: the default for CPU buffers.
    pub const CPU: Self = Self { log2: 6 };

    /// The alignment of a request that specifies none: 64 bytes on the CPU, and equal to that here; 256 bytes
    /// ([`Alignment::PLANNED`]) on devices.
    pub const UNSPECIFIED: Self = Self { log2: Self::CPU.log2 | UNSPECIFIED };

    /// 256 bytes: the default for planned buffers and device buffers.
    pub const PLANNED: Self = Self { log2: 8 };

    /// Creates an alignment of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::NotPowerOfTwo`] if `bytes` is 0 or not a power of two.
    #[inline]
    pub const fn new(bytes: usize) -> Result<Self> {
        if bytes.is_power_of_two() { Ok(Self::of_power(bytes)) } else { Err(Error::NotPowerOfTwo { bytes }) }
    }

    /// Returns the alignment of the Rust type `T`.
    #[inline]
    #[must_use]
    pub const fn of<T>() -> Self {
        Self::of_power(align_of::<T>())
    }

    /// Converts a power of two. Its exponent is below `usize::BITS`, so it fits in the lowest byte of the
    /// count.
    const fn of_power(bytes: usize) -> Self {
        Self { log2: bytes.trailing_zeros().to_le_bytes()[0] }
    }

    /// Returns the alignment in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << (self.log2 & !UNSPECIFIED)
    }

    /// Returns the exponent: `bytes() == 1 << log2()`.
    #[inline]
    #[must_use]
    pub const fn log2(self) -> u32 {
        // From<u8> is not const yet.
        u32::from_le_bytes([self.log2 & !UNSPECIFIED, 0, 0, 0])
    }

    /// Returns `true` for [`Alignment::UNSPECIFIED`], which is equal to an alignment of 64 bytes.
    #[inline]
    #[must_use]
    pub const fn is_unspecified(self) -> bool {
        self.log2 & UNSPECIFIED != 0
    }

    /// Returns the alignment of memory on `device`: [`Alignment::PLANNED`] in place of
    /// [`Alignment::UNSPECIFIED`] if that is not the CPU.
    #[inline]
    #[must_use]
    pub const fn on(self, device: Device) -> Self {
        if self.is_unspecified() && !device.is_cpu() { Self::PLANNED } else { self }
    }

    /// Returns the smallest multiple of the alignment that is at least `n`.
    ///
    /// # Errors
    /// [`Error::Overflow`] if that multiple exceeds `usize::MAX`.
    #[inline]
    pub const fn round_up(self, n: usize) -> Result<usize> {
        let mask = self.mask();
        match n.checked_add(mask) {
            Some(sum) => Ok(sum & !mask),
            None => Err(Error::Overflow { quantity: Quantity::RoundedBytes }),
        }
    }

    /// Returns the largest multiple of the alignment that is at most `n`.
    #[inline]
    #[must_use]
    pub const fn round_down(self, n: usize) -> usize {
        n & !self.mask()
    }

    /// Returns `true` if `address`, an address or an offset, is a multiple of the alignment.
    #[inline]
    #[must_use]
    pub const fn is_aligned(self, address: usize) -> bool {
        address & self.mask() == 0
    }

    const fn mask(self) -> usize {
        self.bytes() - 1
    }
}

impl PartialEq for Alignment {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.log2() == other.log2()
    }
}

impl Eq for Alignment {}

impl PartialOrd for Alignment {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alignment {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.log2().cmp(&other.log2())
    }
}

impl Hash for Alignment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.log2().hash(state);
    }
}

impl fmt::Debug for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alignment({})", self.bytes())
    }
}

impl fmt::Display for Alignment {
    /// Writes the number of bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two() {
        for log2 in 0..usize::BITS {
            let align = Alignment::new(1 << log2).unwrap();
            assert_eq!((align.log2(), align.bytes()), (log2, 1 << log2));
        }
        for bytes in [0, 3, 48, usize::MAX] {
            assert_eq!(Alignment::new(bytes), Err(Error::NotPowerOfTwo { bytes }));
        }
        assert_eq!(Alignment::of::<u32>().bytes(), 4);
        assert_eq!(Alignment::of::<()>(), Alignment::ONE);
    }

    #[test]
    fn an_unspecified_alignment_is_that_of_the_cpu() {
        let align = Alignment::UNSPECIFIED;
        assert!(align == Alignment::CPU && align.is_unspecified() && !Alignment::CPU.is_unspecified());
        assert_eq!((align.bytes(), align.log2(), align.round_up(65)), (64, 6, Ok(128)));
        assert!(align < Alignment::PLANNED && align > Alignment::ONE);
    }

    #[test]
    fn rounding() {
        let align = Alignment::PLANNED;
        for (n, up, down) in [(0, 0, 0), (1, 256, 0), (256, 256, 256), (257, 512, 256), (1000, 1024, 768)] {
            assert_eq!((align.round_up(n), align.round_down(n)), (Ok(up), down));
            assert_eq!(align.is_aligned(n), n == up);
        }
        let largest = usize::MAX - 255;
        assert_eq!(align.round_up(largest), Ok(largest));
        assert_eq!(align.round_up(largest + 1), Err(Error::Overflow { quantity: Quantity::RoundedBytes }));
    }
}
