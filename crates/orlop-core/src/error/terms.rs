//! The terms that error messages are built from.
//!
//! They are closed lists, so that callers can match on them and the same term reads the same in every
//! message.

use core::fmt;

use crate::MemoryKind;

/// A number in a layout; a field of [`Error::Indivisible`](crate::Error::Indivisible).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayoutPart {
    /// The size of a dimension, counted from 0, the outermost.
    Size(usize),
    /// The stride of a dimension, counted from 0, the outermost.
    Stride(usize),
    /// The storage offset.
    Offset,
}

impl fmt::Display for LayoutPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(dim) => write!(f, "the size of dimension {dim}"),
            Self::Stride(dim) => write!(f, "the stride of dimension {dim}"),
            Self::Offset => f.write_str("the storage offset"),
        }
    }
}

/// A quantity whose computation overflowed; a field of [`Error::Overflow`](crate::Error::Overflow).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    /// The product of a shape's sizes, in elements.
    ElementCount,
    /// Elements times bytes per element.
    ByteCount,
    /// A byte count rounded up.
    RoundedBytes,
    /// A sum of byte counts or offsets.
    ByteSum,
    /// The distance between neighbours along a dimension, in elements.
    Stride,
    /// The position of a layout's last element.
    ElementSpan,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ElementCount => "the number of elements",
            Self::ByteCount => "the number of bytes",
            Self::RoundedBytes => "the rounded-up number of bytes",
            Self::ByteSum => "a sum of bytes",
            Self::Stride => "a stride",
            Self::ElementSpan => "the position of the last element",
        })
    }
}

/// What a text was expected to be; a field of [`Error::Parse`](crate::Error::Parse).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// A [`Device`](crate::Device).
    Device,
    /// A [`MemoryKind`](crate::MemoryKind).
    MemoryKind,
    /// A [`ByteSize`](crate::ByteSize).
    ByteSize,
    /// A [`DType`](crate::DType).
    DType,
    /// A [`MemoryFormat`](crate::MemoryFormat).
    MemoryFormat,
}

impl Expected {
    /// Returns examples of accepted texts, for the error message.
    #[must_use]
    pub const fn examples(self) -> &'static str {
        match self {
            Self::Device => "cpu, cuda, cuda:1 or custom3:0",
            Self::MemoryKind => MemoryKind::NAMES_TEXT,
            Self::ByteSize => "4096, 512k, 64MB or 1.5 GiB",
            Self::DType => "PyTorch's names, as in float32, or short ones, as in f32",
            Self::MemoryFormat => "contiguous, channels_last, channels_last_3d or preserve",
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::MemoryKind => "memory kind",
            Self::ByteSize => "byte size",
            Self::DType => "dtype",
            Self::MemoryFormat => "memory format",
        })
    }
}
