//! Errors of importing and exporting through DLPack.

use crate::interchange::dlpack::abi::{DLDataType, DLDevice};
use orlop_core::Device;

/// A tensor that cannot pass through DLPack. Negative sizes and strides, and sizes beyond the address space,
/// are [`Error::Layout`](crate::Error::Layout); misaligned elements are
/// [`Error::Misaligned`](crate::Error::Misaligned).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// The structure has an unsupported version. Its deleter was called.
    #[error("DLPack {major}.{minor} is not supported: ask the producer for version 1")]
    Version {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// The elements are vectors of several lanes.
    #[error("elements of {lanes} lanes are not supported: use another dimension")]
    Lanes {
        /// The lanes of an element.
        lanes: u16,
    },
    /// No [`DType`](orlop_core::DType) corresponds to the element type.
    #[error("no dtype corresponds to DLPack's type code {} with {} bits", dtype.code.0, dtype.bits)]
    DType {
        /// The element type.
        dtype: DLDataType,
    },
    /// No device of orlop corresponds to the device.
    #[error("no device corresponds to DLPack's {}, index {}", device.device_type.0, device.device_id)]
    UnknownDevice {
        /// The device.
        device: DLDevice,
    },
    /// DLPack has no device type for the device.
    #[error("DLPack has no device type for {device}: copy the tensor to cpu first")]
    UnnamedDevice {
        /// The device of the tensor.
        device: Device,
    },
    /// A number of dimensions that is negative, or too large for DLPack.
    #[error("{ndim} dimensions are not supported by DLPack")]
    Ndim {
        /// The number.
        ndim: i64,
    },
    /// A null pointer to the sizes of a tensor with dimensions.
    #[error("the pointer to the sizes of {ndim} dimensions is null")]
    NullShape {
        /// The number of dimensions.
        ndim: usize,
    },
    /// A null pointer to the data of a tensor with elements.
    #[error("the pointer to the data of {numel} elements is null")]
    NullData {
        /// The number of elements.
        numel: usize,
    },
    /// Elements beyond the end of the address space.
    #[error("{bytes} bytes at {address:#x} + {byte_offset} exceed the address space")]
    Address {
        /// The data pointer.
        address: usize,
        /// The bytes from there to the first element.
        byte_offset: u64,
        /// The span of the elements in bytes.
        bytes: usize,
    },
}
