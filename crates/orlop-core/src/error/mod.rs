//! The crate's one error type.
//!
//! Every variant carries the figures of the refusal as typed fields, never a ready-made sentence: callers match on
//! them, and the message is made only when somebody prints it. `Error` is `Copy`, so refusing costs no allocation.

mod terms;

use crate::{DType, DTypeSet, Device, MemoryFormat, MemoryKind};

pub use terms::{Expected, LayoutPart, Quantity};

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

    /// A dimension that is not there.
    #[error("there is no dimension {dim} among {ndim}: count from 0, or from the end with -1, -2, ...")]
    DimOutOfRange {
        /// The dimension asked for.
        dim: isize,
        /// The number of dimensions there are.
        ndim: usize,
    },

    /// A scalar where a dimension is needed.
    #[error("a scalar has no dimension to cut or count along: unsqueeze it first")]
    NoDimensions,

    /// A dimension named twice.
    #[error("dimension {dim} is named twice: name each once")]
    RepeatedDim {
        /// Which dimension, from 0, the outermost.
        dim: usize,
    },

    /// A list of dimensions of the wrong length.
    #[error("{given} dimensions are named where it takes {needed}")]
    DimListLength {
        /// How many were named.
        given: usize,
        /// How many are needed.
        needed: usize,
    },

    /// More dimensions than the operation is for.
    #[error("the operation is for up to {most} dimensions, not {ndim}: transpose or permute names them")]
    TooManyDims {
        /// How many there are.
        ndim: usize,
        /// How many there may be.
        most: usize,
    },

    /// A range of dimensions that ends before it begins.
    #[error("the range from dimension {start} to dimension {end} is empty: swap them")]
    DimOrder {
        /// Its first dimension.
        start: usize,
        /// Its last.
        end: usize,
    },

    /// An index beyond its dimension.
    #[error("there is no index {index} in dimension {dim} of size {size}")]
    IndexOutOfRange {
        /// The index asked for.
        index: isize,
        /// Which dimension, from 0, the outermost.
        dim: usize,
        /// Its size.
        size: usize,
    },

    /// A range beyond its dimension.
    #[error("{length} elements from index {start} are not all in dimension {dim} of size {size}")]
    RangeOutOfDim {
        /// The first index.
        start: isize,
        /// The number of indices.
        length: usize,
        /// Which dimension, from 0, the outermost.
        dim: usize,
        /// Its size.
        size: usize,
    },

    /// A step of 0.
    #[error("a step is 1 or more")]
    ZeroStep,

    /// A window larger than the dimension it slides along.
    #[error("a window of {window} does not fit dimension {dim} of size {size}")]
    WindowTooLarge {
        /// The size of the window.
        window: usize,
        /// Which dimension, from 0, the outermost.
        dim: usize,
        /// Its size.
        size: usize,
    },

    /// A negative storage offset.
    #[error("storage offset {offset} is negative: it counts elements from the start of the storage")]
    NegativeOffset {
        /// The offset asked for.
        offset: isize,
    },

    /// Fewer sizes than dimensions.
    #[error("{sizes} sizes cannot expand {ndim} dimensions: give a size for each, -1 to keep it")]
    TooFewSizes {
        /// The number of sizes.
        sizes: usize,
        /// The number of dimensions.
        ndim: usize,
    },

    /// A size that expanding cannot change.
    #[error("dimension {dim} of the result cannot expand from size {size} to {to}: only from size 1")]
    NotExpandable {
        /// Which dimension of the result, from 0, the outermost.
        dim: usize,
        /// The size it has.
        size: usize,
        /// The size asked for.
        to: usize,
    },

    /// A size to keep where there is none.
    #[error("dimension {dim} of the result is new, so -1 keeps nothing: give its size")]
    NothingToKeep {
        /// Which dimension of the result, from 0, the outermost.
        dim: usize,
    },

    /// Two shapes that do not broadcast.
    #[error("sizes {a} and {b} of dimension {dim} do not broadcast: they have to be equal, or one of them 1")]
    NotBroadcastable {
        /// Which dimension of the result, from 0, the outermost.
        dim: usize,
        /// Its size in one shape.
        a: usize,
        /// Its size in the other.
        b: usize,
    },

    /// Two sizes of -1.
    #[error("sizes {first} and {second} are both -1: one at most follows from the others")]
    InferredTwice {
        /// The position of one, from 0, the outermost.
        first: usize,
        /// The position of the other.
        second: usize,
    },

    /// A size of -1 beside one of 0.
    #[error("size {dim} is -1 beside a size of 0 and could be anything: give it")]
    InferredBesideZero {
        /// The position of the -1, from 0, the outermost.
        dim: usize,
    },

    /// Sizes for another number of elements.
    #[error(
        "sizes that multiply to {product} do not hold {numel} elements (beside a -1, they have to divide them)"
    )]
    NumelMismatch {
        /// The product of the sizes, without a -1.
        product: usize,
        /// The number of elements there are.
        numel: usize,
    },

    /// Sizes that would need a copy.
    #[error("a new dimension would run across dimensions {} and {dim}, which do not continue each other in \
        memory: reshape copies them", dim.saturating_sub(1))]
    NotViewable {
        /// The inner one of the two dimensions, from 0, the outermost; it is 1 or more.
        dim: usize,
    },

    /// No sizes to split a dimension into.
    #[error("a dimension is not split into no dimensions: give at least one size")]
    NoSizes,

    /// Pieces of size 0 along a dimension that has elements.
    #[error("pieces of size 0 never cover a dimension of size {size}: ask for 1 or more")]
    EmptyPieces {
        /// The size of the dimension.
        size: usize,
    },

    /// No pieces.
    #[error("a dimension is not divided into 0 pieces: ask for 1 or more")]
    NoPieces,

    /// Sizes of pieces that do not add up to their dimension.
    #[error("the pieces add up to {sum}, and the dimension has size {size}")]
    PiecesMismatch {
        /// The sum of the sizes.
        sum: usize,
        /// The size of the dimension.
        size: usize,
    },

    /// Element sizes of which neither divides the other.
    #[error("elements of {from} bytes do not view as elements of {to} bytes: one has to divide the other")]
    ItemsizeRatio {
        /// The size of an element, in bytes.
        from: usize,
        /// The size of an element of the view, in bytes.
        to: usize,
    },

    /// A last dimension with gaps under another element size.
    #[error("the last stride is {stride}, and other element sizes need 1: make it contiguous first")]
    LastStride {
        /// The last stride, in elements.
        stride: usize,
    },

    /// A quantity that larger elements do not divide.
    #[error("{part}, {value}, is no multiple of the {by} elements that become one")]
    Indivisible {
        /// What was to be divided.
        part: LayoutPart,
        /// Its value, in elements.
        value: usize,
        /// How many elements become one.
        by: usize,
    },
}
