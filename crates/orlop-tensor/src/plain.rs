//! [`Plain`]: types that can be read directly from a tensor's memory.
//!
//! `bool` is not one of them: a byte of memory may be 7, which no `bool` may. [`Bool8`] takes its place.

use bytemuck::{Pod, Zeroable};
use orlop_core::{Complex, DType, Element, F8E4M3, F8E5M2, bf16, f16};
use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// An element type, or its stand-in, for which every bit pattern is a valid value.
///
/// The trait is sealed: typed access is safe because a tensor of [`Plain::DTYPE`] holds such values.
pub trait Plain: sealed::Sealed + Pod + Send + Sync + PartialEq + fmt::Debug {
    /// The dtype whose elements are read as this type.
    const DTYPE: DType;

    /// The element type that this type stands for.
    type Element: Element;

    /// Converts to the element.
    fn element(self) -> Self::Element;

    /// Converts from the element.
    fn plain(element: Self::Element) -> Self;
}

macro_rules! plain {
    ($($rust:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $rust {}

        impl Plain for $rust {
            const DTYPE: DType = <$rust as Element>::DTYPE;
            type Element = $rust;

            #[inline]
            fn element(self) -> $rust {
                self
            }

            #[inline]
            fn plain(element: $rust) -> $rust {
                element
            }
        }
    )+};
}

plain!(u8, u16, u32, u64, i8, i16, i32, i64, F8E4M3, F8E5M2, f16, bf16, f32, f64, Complex<f32>, Complex<f64>);

/// A `bool` in memory: zero is false and every other byte is true. Equality compares truth values, not bytes.
///
/// ```
/// use orlop_tensor::Bool8;
///
/// assert_eq!(Bool8::from(true), Bool8::from_byte(7));
/// assert!(!Bool8::default().get());
/// ```
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool8(u8);

impl Bool8 {
    /// Converts a byte: zero is false, every other value is true.
    #[inline]
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// Returns the truth value.
    #[inline]
    #[must_use]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool8 {
    #[inline]
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl From<Bool8> for bool {
    #[inline]
    fn from(value: Bool8) -> Self {
        value.get()
    }
}

impl PartialEq for Bool8 {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool8 {}

impl fmt::Debug for Bool8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl sealed::Sealed for Bool8 {}

impl Plain for Bool8 {
    const DTYPE: DType = DType::Bool;
    type Element = bool;

    #[inline]
    fn element(self) -> bool {
        self.get()
    }

    #[inline]
    fn plain(element: bool) -> Self {
        element.into()
    }
}

/// Evaluates an expression with a type name bound to the [`Plain`] type of a dtype.
macro_rules! dispatch_plain {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::plain::dispatch_plain!(@match $dtype, $T, $body, [
            Bool = $crate::Bool8,
            U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
            F8E4M3 = orlop_core::F8E4M3, F8E5M2 = orlop_core::F8E5M2,
            F16 = orlop_core::f16, BF16 = orlop_core::bf16,
            F32 = f32, F64 = f64, C64 = orlop_core::Complex<f32>, C128 = orlop_core::Complex<f64>,
        ])
    };
    (@match $dtype:expr, $T:ident, $body:expr, [$($variant:ident = $rust:ty,)+]) => {
        match $dtype {
            $(orlop_core::DType::$variant => {
                type $T = $rust;
                $body
            })+
        }
    };
}
pub(crate) use dispatch_plain;
