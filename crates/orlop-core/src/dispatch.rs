//! [`dispatch!`]: from a run-time dtype to a Rust type.
//!
//! Typed code is generic over [`Element`](crate::Element), but a tensor knows its dtype only at run time.
//! [`dispatch!`] instantiates the code for each dtype, so no kernel writes its own match.

use core::fmt;

/// Evaluates an expression with a type name bound to the Rust type of a [`DType`](crate::DType).
///
/// `dispatch!(dtype, T => expression)` covers every dtype and has the value of the expression. With a set
/// after the name, as in `T: Floats`, the expression is compiled for those types only, so it may use their
/// inherent items. It then has the type `Result`, with [`Error::DTypeNotIn`](crate::Error::DTypeNotIn) for
/// other dtypes. The sets are those of [`DTypeSet`]: `Ints`, `Floats`, `Reals`, `Complex`.
///
/// ```
/// use orlop_core::{DType, dispatch};
///
/// assert_eq!(dispatch!(DType::F64, T => size_of::<T>()), 8);
///
/// let largest = |dtype| dispatch!(dtype, T: Ints => T::MAX.to_string());
/// assert_eq!(largest(DType::I8).unwrap(), "127");
/// assert!(largest(DType::F32).is_err());
/// ```
#[macro_export]
macro_rules! dispatch {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::dispatch!(@match $dtype, $T, $body, [
            Bool = bool, U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
            F8E4M3 = $crate::F8E4M3, F8E5M2 = $crate::F8E5M2, F16 = $crate::f16, BF16 = $crate::bf16,
            F32 = f32, F64 = f64, C64 = $crate::Complex<f32>, C128 = $crate::Complex<f64>,
        ])
    };
    ($dtype:expr, $T:ident: Ints => $body:expr) => {
        $crate::dispatch!(@subset Ints, $dtype, $T, $body, [
            U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
        ])
    };
    ($dtype:expr, $T:ident: Floats => $body:expr) => {
        $crate::dispatch!(@subset Floats, $dtype, $T, $body, [
            F8E4M3 = $crate::F8E4M3, F8E5M2 = $crate::F8E5M2, F16 = $crate::f16, BF16 = $crate::bf16,
            F32 = f32, F64 = f64,
        ])
    };
    ($dtype:expr, $T:ident: Reals => $body:expr) => {
        $crate::dispatch!(@subset Reals, $dtype, $T, $body, [
            U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
            F8E4M3 = $crate::F8E4M3, F8E5M2 = $crate::F8E5M2, F16 = $crate::f16, BF16 = $crate::bf16,
            F32 = f32, F64 = f64,
        ])
    };
    ($dtype:expr, $T:ident: Complex => $body:expr) => {
        $crate::dispatch!(@subset Complex, $dtype, $T, $body, [
            C64 = $crate::Complex<f32>, C128 = $crate::Complex<f64>,
        ])
    };
    (@match $dtype:expr, $T:ident, $body:expr, [$($variant:ident = $rust:ty,)+]) => {
        match $dtype {
            $($crate::DType::$variant => {
                #[allow(dead_code, reason = "the expression need not name the type")]
                type $T = $rust;
                $body
            })+
        }
    };
    (@subset $set:ident, $dtype:expr, $T:ident, $body:expr, [$($variant:ident = $rust:ty,)+]) => {
        match $dtype {
            $($crate::DType::$variant => {
                #[allow(dead_code, reason = "the expression need not name the type")]
                type $T = $rust;
                $crate::Result::Ok($body)
            })+
            dtype => $crate::Result::Err($crate::Error::DTypeNotIn { dtype, set: $crate::DTypeSet::$set }),
        }
    };
}

/// A set of dtypes that [`dispatch!`] can be limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DTypeSet {
    /// The eight integer types, without `bool`.
    Ints,
    /// The real floats, including the 8-bit ones.
    Floats,
    /// Integers and real floats.
    Reals,
    /// The two complex types.
    Complex,
}

impl fmt::Display for DTypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ints => "an integer",
            Self::Floats => "a float",
            Self::Reals => "an integer or a float",
            Self::Complex => "a complex number",
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, DTypeSet, Error};

    #[test]
    fn sets_agree_with_the_families() {
        for dtype in DType::ALL {
            let refused = |set| Err(Error::DTypeNotIn { dtype, set });
            let expect = |within, set| if within { Ok(dtype.size()) } else { refused(set) };
            let ints = dispatch!(dtype, T: Ints => size_of::<T>());
            assert_eq!(ints, expect(dtype.is_integer(), DTypeSet::Ints));
            let floats = dispatch!(dtype, T: Floats => size_of::<T>());
            assert_eq!(floats, expect(dtype.is_float(), DTypeSet::Floats));
            let reals = dispatch!(dtype, T: Reals => size_of::<T>());
            assert_eq!(reals, expect(dtype.is_integer() || dtype.is_float(), DTypeSet::Reals));
            let complex = dispatch!(dtype, T: Complex => size_of::<T>());
            assert_eq!(complex, expect(dtype.is_complex(), DTypeSet::Complex));
        }
    }
}
