//! DLPack's C structures.
//!
//! They follow the public header, version 1.1 (<https://dmlc.github.io/dlpack/latest/c_api.html>), including
//! its names. C enums are numbers here, because a producer may send any value.

use std::ffi::c_void;

/// The version of the structures. Another major number means another layout of everything after
/// [`DLManagedTensorVersioned::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Incremented when the layout changes.
    pub major: u32,
    /// Incremented when the set of allowed values changes.
    pub minor: u32,
}

impl DLPackVersion {
    /// The version of exports. Imports accept every version with this major number.
    pub const CURRENT: Self = Self { major: 1, minor: 1 };
}

/// A device type, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct DLDeviceType(pub i32);

impl DLDeviceType {
    /// Host memory.
    pub const CPU: Self = Self(1);
    /// NVIDIA GPUs.
    pub const CUDA: Self = Self(2);
    /// Page-locked host memory for NVIDIA GPUs.
    pub const CUDA_HOST: Self = Self(3);
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// The device type.
    pub device_type: DLDeviceType,
    /// The index among devices of the type; 0 for host memory.
    pub device_id: i32,
}

/// A family of element types, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct DLDataTypeCode(pub u8);

impl DLDataTypeCode {
    /// Signed integers.
    pub const INT: Self = Self(0);
    /// Unsigned integers.
    pub const UINT: Self = Self(1);
    /// IEEE floats.
    pub const FLOAT: Self = Self(2);
    /// bfloat16.
    pub const BFLOAT: Self = Self(4);
    /// Complex numbers; the bits count both parts.
    pub const COMPLEX: Self = Self(5);
    /// Booleans.
    pub const BOOL: Self = Self(6);
    /// Eight-bit floats with four exponent bits, finite only.
    pub const FLOAT8_E4M3FN: Self = Self(10);
    /// Eight-bit floats with five exponent bits.
    pub const FLOAT8_E5M2: Self = Self(12);
}

/// The type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The family.
    pub code: DLDataTypeCode,
    /// The bits of a lane.
    pub bits: u8,
    /// The number of lanes of an element: more than one for vector types.
    pub lanes: u16,
}

/// A tensor without ownership.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DLTensor {
    /// The start of the memory; may be null if there are no elements.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// The `ndim` sizes.
    pub shape: *mut i64,
    /// The `ndim` strides in elements, or null for row-major strides.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// The function that releases a tensor. It is called once, and frees the managed tensor too.
pub type DLDeleter<M> = unsafe extern "C" fn(managed: *mut M);

/// A tensor with ownership.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of this structure. This and the next three fields stay where they are in all versions.
    pub version: DLPackVersion,
    /// The producer's private pointer.
    pub manager_ctx: *mut c_void,
    /// The function to call at the end, or null.
    pub deleter: Option<DLDeleter<Self>>,
    /// The flags [`READ_ONLY`], [`IS_COPIED`], [`IS_SUBBYTE_TYPE_PADDED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A tensor with ownership, from before version 1.0: it has no flag for read-only memory.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The producer's private pointer.
    pub manager_ctx: *mut c_void,
    /// The function to call at the end, or null.
    pub deleter: Option<DLDeleter<Self>>,
}

/// Flag: the memory must not be written.
pub const READ_ONLY: u64 = 1;
/// Flag: the memory is a copy that only the consumer uses until it calls the deleter.
pub const IS_COPIED: u64 = 1 << 1;
/// Flag: elements smaller than a byte take a byte each. orlop has no such elements.
pub const IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;

    assert!(size_of::<DLDevice>() == 8 && size_of::<DLDataType>() == 4 && size_of::<DLTensor>() == 48);
    assert!(offset_of!(DLTensor, ndim) == 16 && offset_of!(DLTensor, dtype) == 20);
    assert!(offset_of!(DLTensor, strides) == 32 && offset_of!(DLTensor, byte_offset) == 40);
    assert!(size_of::<DLManagedTensorVersioned>() == 80 && size_of::<DLManagedTensor>() == 64);
    assert!(offset_of!(DLManagedTensorVersioned, flags) == 24);
    assert!(offset_of!(DLManagedTensorVersioned, dl_tensor) == 32);
};
