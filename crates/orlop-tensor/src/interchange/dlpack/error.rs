//! What is wrong with a tensor that comes in, or that should go out.

use super::abi::{DLDataType, DLDevice};
use orlop_core::Device;

/// Why a tensor cannot go through DLPack. Negative sizes and strides, and sizes beyond the address space, are
/// [`Error::Layout`](crate::Error::Layout); elements that are not aligned are
/// [`Error::Misaligned`](crate::Error::Misaligned).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// The structure is of a version whose layout is not known. Its deleter was called.
    #[error("DLPack {major}.{minor} lays tensors out in another way: ask the producer for version 1")]
    Version {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// Elements are vectors of several numbers.
    #[error("elements of {lanes} lanes are not supported: use another dimension")]
    Lanes {
        /// Numbers in an element.
        lanes: u16,
    },
    /// There is no such dtype.
    #[error("no dtype is DLPack's type {} of {} bits", dtype.code.0, dtype.bits)]
    DType {
        /// What came.
        dtype: DLDataType,
    },
    /// There is no such device here.
    #[error("no device is DLPack's device {} of type {}", device.device_id, device.device_type.0)]
    UnknownDevice {
        /// What came.
        device: DLDevice,
    },
    /// DLPack has no word for the device.
    #[error("DLPack has no word for {device}: copy the tensor to cpu first")]
    UnnamedDevice {
        /// Where the tensor is.
        device: Device,
    },
    /// The number of dimensions is negative, or more than DLPack can say.
    #[error("{ndim} dimensions")]
    Ndim {
        /// The number.
        ndim: i64,
    },
    /// There are dimensions and no sizes.
    #[error("the sizes of {ndim} dimensions are at a null pointer")]
    NullShape {
        /// The number of dimensions.
        ndim: usize,
    },
    /// There are elements and no memory.
    #[error("{numel} elements are at a null pointer")]
    NullData {
        /// The number of elements.
        numel: usize,
    },
    /// The elements would lie beyond the end of the address space.
    #[error("{bytes} bytes at {address:#x} + {byte_offset} are not in the address space")]
    Address {
        /// The data pointer.
        address: usize,
        /// Bytes from there to the first element.
        byte_offset: u64,
        /// Bytes that the elements reach.
        bytes: usize,
    },
}
