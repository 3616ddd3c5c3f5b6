//! The error type of the crate.
//!
//! Variants carry their figures as typed fields: callers match on them, and the message is built only when it
//! is printed. `Error` is `Copy`, so returning one never allocates.

mod terms;

use crate::{DType, DTypeSet, Device, MemoryFormat, MemoryKind};

pub use terms::{Expected, LayoutPart, Quantity};

/// The result type of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An invalid argument or an overflow, with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A computed size exceeds the address space.
    #[error("{quantity} does not fit in the address space")]
    Overflow {
        /// What was being computed.
        quantity: Quantity,
    },

    /// An alignment that is not a power of two.
    #[error("{bytes} bytes is not an alignment: it must be a power of two")]
    NotPowerOfTwo {
        /// The requested alignment, in bytes.
        bytes: usize,
    },

    /// A text that does not parse.
    #[error("not a {expected}: use {}", expected.examples())]
    Parse {
        /// What the text was expected to be.
        expected: Expected,
    },

    /// A CPU index other than 0: there is one CPU device, whatever the number of sockets.
    #[error("there is no cpu:{index}: all host memory is the one device cpu")]
    CpuIndex {
        /// The requested index.
        index: u16,
    },

    /// A host memory kind on a device other than the CPU.
    #[error("memory kind {kind} is host memory and cannot be on {device}: request it on cpu")]
    HostKindOnDevice {
        /// The host kind.
        kind: MemoryKind,
        /// The requested device.
        device: Device,
    },

    /// Two dtypes without a common dtype.
    #[error("{a} and {b} do not promote to a common dtype: cast one of them first")]
    NoPromotion {
        /// One operand.
        a: DType,
        /// The other operand.
        b: DType,
    },

    /// A dtype that the operation does not support.
    #[error("the operation needs {set}, not {dtype}")]
    DTypeNotIn {
        /// The dtype.
        dtype: DType,
        /// The supported dtypes.
        set: DTypeSet,
    },

    /// A negative size.
    #[error("size {size} of dimension {dim} is negative")]
    NegativeSize {
        /// The dimension, counted from 0, the outermost.
        dim: usize,
        /// Its size.
        size: i64,
    },

    /// A negative stride along a dimension of two elements or more.
    #[error("stride {stride} of dimension {dim} is negative: copy the data in forward order")]
    NegativeStride {
        /// The dimension, counted from 0, the outermost.
        dim: usize,
        /// Its stride, in elements.
        stride: i64,
    },

    /// Different numbers of sizes and strides.
    #[error("{sizes} sizes but {strides} strides")]
    RankMismatch {
        /// The number of sizes.
        sizes: usize,
        /// The number of strides.
        strides: usize,
    },

    /// A memory format for another number of dimensions.
    #[error("memory format {format} is for {needs} dimensions, not {ndim}")]
    FormatRank {
        /// The format.
        format: MemoryFormat,
        /// The number of dimensions of the format.
        needs: usize,
        /// The number of dimensions of the shape.
        ndim: usize,
    },

    /// [`MemoryFormat::Preserve`] without an existing tensor.
    #[error("memory format preserve needs an existing tensor: name a format instead")]
    PreserveWithoutSource,

    /// A layout that reaches beyond the end of its storage.
    #[error("the view ends at byte {end_bytes} of a storage of {storage_bytes} bytes")]
    OutOfStorage {
        /// The end of the last byte that the layout reaches.
        end_bytes: usize,
        /// The size of the storage in bytes.
        storage_bytes: usize,
    },

    /// A dimension out of range.
    #[error("no dimension {dim} among {ndim}: count from 0, or from the end with -1, -2, ...")]
    DimOutOfRange {
        /// The requested dimension.
        dim: isize,
        /// The number of dimensions.
        ndim: usize,
    },

    /// A scalar where at least one dimension is needed.
    #[error("a scalar has no dimension to slice or index: unsqueeze it first")]
    NoDimensions,

    /// A dimension that a list names twice.
    #[error("dimension {dim} is listed twice: list each dimension once")]
    RepeatedDim {
        /// The dimension, counted from 0, the outermost.
        dim: usize,
    },

    /// A list of dimensions of the wrong length.
    #[error("{given} dimensions are listed, but {needed} are needed")]
    DimListLength {
        /// The number of listed dimensions.
        given: usize,
        /// The number of dimensions needed.
        needed: usize,
    },

    /// More dimensions than the operation supports.
    #[error("the operation supports up to {max} dimensions, not {ndim}: use transpose or permute")]
    TooManyDims {
        /// The number of dimensions.
        ndim: usize,
        /// The largest supported number.
        max: usize,
    },

    /// A range of dimensions that ends before its start.
    #[error("the range from dimension {start} to dimension {end} is empty: swap its ends")]
    DimOrder {
        /// The first dimension.
        start: usize,
        /// The last dimension.
        end: usize,
    },

    /// An index out of range.
    #[error("index {index} is out of range for dimension {dim} of size {size}")]
    IndexOutOfRange {
        /// The requested index.
        index: isize,
        /// The dimension, counted from 0, the outermost.
        dim: usize,
        /// The size of the dimension.
        size: usize,
    },

    /// A range of indices that exceeds its dimension.
    #[error("{length} elements from index {start} exceed dimension {dim} of size {size}")]
    RangeOutOfDim {
        /// The first index.
        start: isize,
        /// The number of indices.
        length: usize,
        /// The dimension, counted from 0, the outermost.
        dim: usize,
        /// The size of the dimension.
        size: usize,
    },

    /// A step of 0.
    #[error("a step must be at least 1")]
    ZeroStep,

    /// A window larger than its dimension.
    #[error("a window of {window} elements exceeds dimension {dim} of size {size}")]
    WindowTooLarge {
        /// The size of the window.
        window: usize,
        /// The dimension, counted from 0, the outermost.
        dim: usize,
        /// The size of the dimension.
        size: usize,
    },

    /// A negative storage offset.
    #[error("storage offset {offset} is negative: it counts elements from the start of the storage")]
    NegativeOffset {
        /// The requested offset.
        offset: isize,
    },

    /// Fewer sizes than dimensions.
    #[error("{sizes} sizes cannot expand {ndim} dimensions: give a size for each, or -1 to keep it")]
    TooFewSizes {
        /// The number of sizes.
        sizes: usize,
        /// The number of dimensions.
        ndim: usize,
    },

    /// A size that cannot be expanded.
    #[error("dimension {dim} of the result cannot expand from size {size} to {to}: only size 1 expands")]
    NotExpandable {
        /// The dimension of the result, counted from 0, the outermost.
        dim: usize,
        /// The present size.
        size: usize,
        /// The requested size.
        to: usize,
    },

    /// A size of -1 for a new dimension, which has no size to keep.
    #[error("dimension {dim} of the result is new, so -1 has no size to keep: give its size")]
    NothingToKeep {
        /// The dimension of the result, counted from 0, the outermost.
        dim: usize,
    },

    /// Two shapes that do not broadcast.
    #[error("sizes {a} and {b} of dimension {dim} do not broadcast: they must be equal, or one of them 1")]
    NotBroadcastable {
        /// The dimension of the result, counted from 0, the outermost.
        dim: usize,
        /// The size in one shape.
        a: usize,
        /// The size in the other shape.
        b: usize,
    },

    /// Two sizes of -1.
    #[error("the sizes of dimensions {first} and {second} are both -1: only one can be inferred")]
    InferredTwice {
        /// The index of the first -1, counted from 0, the outermost.
        first: usize,
        /// The index of the second -1.
        second: usize,
    },

    /// A size of -1 beside one of 0.
    #[error(
        "the size of dimension {dim} is -1, which cannot be inferred if another size is 0: give the size"
    )]
    InferredBesideZero {
        /// The index of the -1, counted from 0, the outermost.
        dim: usize,
    },

    /// Sizes whose product is not the number of elements.
    #[error(
        "the product of the sizes is {product}: it must equal the number of elements, {numel}, or divide it \
        if one size is -1"
    )]
    NumelMismatch {
        /// The product of the sizes, without a -1.
        product: usize,
        /// The number of elements.
        numel: usize,
    },

    /// Sizes that no view of the layout can have.
    #[error("a dimension of the view would span dimensions {} and {dim}, which are not contiguous in memory: \
        use reshape, which copies", dim.saturating_sub(1))]
    NotViewable {
        /// The inner of the two dimensions, counted from 0, the outermost; at least 1.
        dim: usize,
    },

    /// An empty list of sizes to split a dimension into.
    #[error("a dimension cannot be split into zero dimensions: give at least one size")]
    NoSizes,

    /// Pieces of size 0 of a dimension that has elements.
    #[error("pieces of size 0 cannot cover a dimension of size {size}: use 1 or more")]
    EmptyPieces {
        /// The size of the dimension.
        size: usize,
    },

    /// A piece count of 0.
    #[error("a dimension cannot be divided into 0 pieces: use 1 or more")]
    NoPieces,

    /// Sizes of pieces whose sum is not the size of the dimension.
    #[error("the pieces add up to {sum}, but the dimension has size {size}")]
    PiecesMismatch {
        /// The sum of the sizes.
        sum: usize,
        /// The size of the dimension.
        size: usize,
    },

    /// Element sizes where neither divides the other.
    #[error("elements of {from} bytes cannot be viewed as {to} bytes: one size must divide the other")]
    ItemsizeRatio {
        /// The size of an element, in bytes.
        from: usize,
        /// The size of an element of the view, in bytes.
        to: usize,
    },

    /// A view with another element size of a layout whose last stride is not 1.
    #[error(
        "the last stride is {stride}, but a view with another element size needs a last stride of 1: make \
        the tensor contiguous first"
    )]
    LastStride {
        /// The last stride, in elements.
        stride: usize,
    },

    /// A size, stride or offset that is not a multiple of the element ratio.
    #[error("{part} is {value}, which is not a multiple of {by}, the number of elements that become one")]
    Indivisible {
        /// The number to divide.
        part: LayoutPart,
        /// Its value, in elements.
        value: usize,
        /// The number of elements that become one.
        by: usize,
    },
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn messages_are_sentences() {
        let messages = [
            (
                Error::NumelMismatch { product: 6, numel: 7 },
                "the product of the sizes is 6: it must equal the number of elements, 7, or divide it if one \
                 size is -1",
            ),
            (
                Error::InferredBesideZero { dim: 1 },
                "the size of dimension 1 is -1, which cannot be inferred if another size is 0: give the size",
            ),
            (
                Error::Indivisible { part: LayoutPart::Size(0), value: 5, by: 4 },
                "the size of dimension 0 is 5, which is not a multiple of 4, the number of elements that \
                 become one",
            ),
        ];
        for (error, message) in messages {
            assert_eq!(error.to_string(), message);
        }
    }
}
