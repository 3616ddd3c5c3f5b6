//! The crate's one error type.
//!
//! Every variant carries the figures of the refusal as typed fields, never a ready-made sentence: callers match on
//! them, and the message is made only when somebody prints it. `Error` is `Copy`, so refusing costs no allocation.

use core::fmt;

use crate::{DType, DTypeSet, Device, MemoryFormat, MemoryKind};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What this crate refuses, with the figures of the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size computation left the range that memory can have.
    #[error("{quantity} does not fit in the address space")]
    Overflow {
        /// What was being computed.
        quantity: Quantity,
    },

    /// An alignment that is not a power of two.
    #[error("an alignment is a power of two, which {bytes} bytes is not")]
    NotPowerOfTwo {
        /// The alignment asked for, in bytes.
        bytes: usize,
    },

    /// A text that is not the name or number it should be.
    #[error("not a {expected}: use {}", expected.examples())]
    Parse {
        /// What the text should have been.
        expected: Expected,
    },

    /// A second CPU: there is one CPU device, whatever its number of sockets.
    #[error("there is no cpu:{index}: all host memory is the one device cpu")]
    CpuIndex {
        /// The index asked for.
        index: u16,
    },

    /// A host memory kind on a device that is not the CPU.
    #[error("memory kind {kind} lives in host memory and cannot be on {device}: ask for it on cpu")]
    HostKindOnDevice {
        /// The host kind.
        kind: MemoryKind,
        /// The device it was asked on.
        device: Device,
    },

    /// Two dtypes that have no common one.
    #[error("{a} and {b} do not promote to a common dtype: cast one of them first")]
    NoPromotion {
        /// One operand.
        a: DType,
        /// The other.
        b: DType,
    },

    /// A dtype outside the set that an operation is for.
    #[error("the operation needs {set}, not {dtype}")]
    DTypeNotIn {
        /// The dtype that came.
        dtype: DType,
        /// The dtypes that would do.
        set: DTypeSet,
    },

    /// A negative size.
    #[error("size {size} of dimension {dim} is negative")]
    NegativeSize {
        /// Which dimension, from 0, the outermost.
        dim: usize,
        /// Its size.
        size: i64,
    },

    /// A negative stride along a dimension of two elements or more.
    #[error("stride {stride} of dimension {dim} is negative: copy the data in forward order")]
    NegativeStride {
        /// Which dimension, from 0, the outermost.
        dim: usize,
        /// Its stride, in elements.
        stride: i64,
    },

    /// Sizes and strides of different numbers of dimensions.
    #[error("{sizes} sizes but {strides} strides")]
    RankMismatch {
        /// The number of sizes.
        sizes: usize,
        /// The number of strides.
        strides: usize,
    },

    /// A memory format on a shape of another number of dimensions.
    #[error("memory format {format} is for {needs} dimensions, not {ndim}")]
    FormatRank {
        /// The format.
        format: MemoryFormat,
        /// The number of dimensions it is for.
        needs: usize,
        /// The number of dimensions there are.
        ndim: usize,
    },

    /// [`MemoryFormat::Preserve`] with nothing to preserve.
    #[error("memory format preserve needs a tensor whose format it preserves: name a format instead")]
    PreserveWithoutSource,

    /// A layout that reaches beyond its storage.
    #[error("the view ends at byte {end_bytes} of a storage of {storage_bytes} bytes")]
    OutOfStorage {
        /// One past the last byte reached.
        end_bytes: usize,
        /// What the storage has.
        storage_bytes: usize,
    },
}

/// A quantity whose computation overflowed; a field of [`Error::Overflow`].
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

/// What a text was expected to be; a field of [`Error::Parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// A [`Device`].
    Device,
    /// A [`MemoryKind`].
    MemoryKind,
    /// A [`ByteSize`](crate::ByteSize).
    ByteSize,
    /// A [`DType`].
    DType,
    /// A [`MemoryFormat`].
    MemoryFormat,
}

impl Expected {
    /// Texts that would have been accepted, for the error message.
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
