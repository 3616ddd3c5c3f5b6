//! [`DType`]: element types as run-time values.
//!
//! A dtype is one byte that determines size, alignment, name and family. One table generates the enum, the
//! names, the parser and the mapping to Rust types ([`Element::DTYPE`](crate::Element::DTYPE)).

use core::{fmt, str::FromStr};

use half::{bf16, f16};
use num_complex::Complex;

use crate::{Alignment, Element, Error, Expected, F8E4M3, F8E5M2, Result};

/// The family of a [`DType`], which decides arithmetic and promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeFamily {
    /// `bool`.
    Bool,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Eight-bit floats: storage formats without arithmetic.
    Float8,
    /// Floats of 16 bits or more.
    Float,
    /// Complex numbers.
    Complex,
}

macro_rules! dtypes {
    ($($(#[$meta:meta])* $variant:ident, $name:literal, $short:literal, $rust:ty, $family:ident;)+) => {
        /// The type of a tensor's elements.
        ///
        /// The enum is deliberately exhaustive: code that matches on dtypes fails to compile when one is
        /// added.
        ///
        /// ```
        /// use orlop_core::DType;
        ///
        /// let dtype: DType = "bf16".parse()?;
        /// assert_eq!(dtype, DType::BF16);
        /// assert_eq!(dtype.to_string(), "bfloat16");
        /// assert_eq!(dtype.size(), 2);
        /// # Ok::<(), orlop_core::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType {
            $($(#[$meta])* $variant,)+
        }

        impl DType {
            /// All dtypes, in the order of the table.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the size of an element in bytes.
            #[inline]
            #[must_use]
            pub const fn size(self) -> usize {
                match self { $(Self::$variant => size_of::<$rust>()),+ }
            }

            /// Returns the alignment that typed access to an element needs.
            #[inline]
            #[must_use]
            pub const fn alignment(self) -> Alignment {
                match self { $(Self::$variant => Alignment::of::<$rust>()),+ }
            }

            /// Returns PyTorch's name, such as `float32`. This is also what `Display` writes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the short name, such as `f32`. It parses too.
            #[must_use]
            pub const fn short_name(self) -> &'static str {
                match self { $(Self::$variant => $short),+ }
            }

            /// Returns the family.
            #[inline]
            #[must_use]
            pub const fn family(self) -> DTypeFamily {
                match self { $(Self::$variant => DTypeFamily::$family),+ }
            }
        }

        $(
            impl crate::element::sealed::Sealed for $rust {}

            impl Element for $rust {
                const DTYPE: DType = DType::$variant;
            }
        )+
    };
}

dtypes! {
    /// `bool`, one byte: 0 or 1. Any other byte is invalid.
    Bool, "bool", "b1", bool, Bool;
    /// `u8`.
    U8, "uint8", "u8", u8, Unsigned;
    /// `u16`.
    U16, "uint16", "u16", u16, Unsigned;
    /// `u32`.
    U32, "uint32", "u32", u32, Unsigned;
    /// `u64`.
    U64, "uint64", "u64", u64, Unsigned;
    /// `i8`.
    I8, "int8", "i8", i8, Signed;
    /// `i16`.
    I16, "int16", "i16", i16, Signed;
    /// `i32`.
    I32, "int32", "i32", i32, Signed;
    /// `i64`.
    I64, "int64", "i64", i64, Signed;
    /// [`F8E4M3`]: finite only, largest value 448.
    F8E4M3, "float8_e4m3fn", "f8e4m3", F8E4M3, Float8;
    /// [`F8E5M2`]: IEEE-like, largest finite value 57344.
    F8E5M2, "float8_e5m2", "f8e5m2", F8E5M2, Float8;
    /// [`half::f16`].
    F16, "float16", "f16", f16, Float;
    /// [`half::bf16`].
    BF16, "bfloat16", "bf16", bf16, Float;
    /// `f32`.
    F32, "float32", "f32", f32, Float;
    /// `f64`.
    F64, "float64", "f64", f64, Float;
    /// Two `f32`.
    C64, "complex64", "c64", Complex<f32>, Complex;
    /// Two `f64`.
    C128, "complex128", "c128", Complex<f64>, Complex;
}

impl DType {
    /// Returns `true` for integer types; `bool` is not one.
    #[inline]
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self.family(), DTypeFamily::Unsigned | DTypeFamily::Signed)
    }

    /// Returns `true` for real floating-point types, including the 8-bit ones.
    #[inline]
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self.family(), DTypeFamily::Float8 | DTypeFamily::Float)
    }

    /// Returns `true` for complex types.
    #[inline]
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self.family(), DTypeFamily::Complex)
    }

    /// Returns `true` for types that can hold negative numbers.
    #[inline]
    #[must_use]
    pub const fn is_signed(self) -> bool {
        !matches!(self.family(), DTypeFamily::Bool | DTypeFamily::Unsigned)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a name or a short name.
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == s || dtype.short_name() == s)
            .ok_or(Error::Parse { expected: Expected::DType })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            assert_eq!(dtype.short_name().parse(), Ok(dtype));
        }
        assert!("float".parse::<DType>().is_err());
    }

    #[test]
    fn names_tell_the_size() {
        for dtype in DType::ALL {
            let digits = dtype.name().split('_').next().unwrap().trim_start_matches(char::is_alphabetic);
            let bits = if dtype == DType::Bool { 8 } else { digits.parse().unwrap() };
            assert_eq!(dtype.size() * 8, bits, "{dtype}");
        }
    }

    #[test]
    fn families() {
        assert!(DType::F8E5M2.is_float() && DType::F8E5M2.is_signed());
        assert!(DType::U16.is_integer() && !DType::U16.is_signed());
        assert!(!DType::Bool.is_integer() && !DType::C64.is_float());
        assert_eq!(DType::C128.alignment().bytes(), align_of::<f64>());
    }
}
