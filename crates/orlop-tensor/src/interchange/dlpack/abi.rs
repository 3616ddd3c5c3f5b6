//! DLPack's structures, as they lie in memory.
//!
//! Facts of the public header, version 1.1 (<https://dmlc.github.io/dlpack/latest/c_api.html>). The names are the header's,
//! so that who knows it finds them; what C has as enums are numbers here, because a producer may send any.

use std::ffi::c_void;

/// The version of the structures. Another major number means another layout of all that follows
/// [`DLManagedTensorVersioned::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with what the numbers may be.
    pub minor: u32,
}

impl DLPackVersion {
    /// What is exported; imports take every version with this major number.
    pub const CURRENT: Self = Self { major: 1, minor: 1 };
}

/// A family of devices, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct DLDeviceType(pub i32);

impl DLDeviceType {
    /// Host memory.
    pub const CPU: Self = Self(1);
    /// NVIDIA GPUs.
    pub const CUDA: Self = Self(2);
    /// Host memory that is page-locked for NVIDIA GPUs.
    pub const CUDA_HOST: Self = Self(3);
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// Its family.
    pub device_type: DLDeviceType,
    /// Its index in the family; 0 for host memory.
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
    /// Complex numbers; the bits are of both parts.
    pub const COMPLEX: Self = Self(5);
    /// Booleans.
    pub const BOOL: Self = Self(6);
    /// Eight-bit floats with four bits of exponent, finite only.
    pub const FLOAT8_E4M3FN: Self = Self(10);
    /// Eight-bit floats with five bits of exponent.
    pub const FLOAT8_E5M2: Self = Self(12);
}

/// The type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// Its family.
    pub code: DLDataTypeCode,
    /// Bits of a lane.
    pub bits: u8,
    /// How many numbers make an element: more than one in vector types.
    pub lanes: u16,
}

/// A tensor, without an owner.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DLTensor {
    /// Where the memory begins; null if there are no elements.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// What the elements are.
    pub dtype: DLDataType,
    /// The sizes: `ndim` of them.
    pub shape: *mut i64,
    /// The strides in elements: `ndim` of them, or null for row-major ones.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// What is to be called, once, when a tensor is no longer used. It frees the managed tensor too.
pub type DLDeleter<M> = unsafe extern "C" fn(managed: *mut M);

/// A tensor with its owner.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of this structure. This and the next three fields stay where they are in all versions.
    pub version: DLPackVersion,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// What to call at the end, if anything.
    pub deleter: Option<DLDeleter<Self>>,
    /// [`READ_ONLY`], [`IS_COPIED`], [`IS_SUBBYTE_TYPE_PADDED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A tensor with its owner, as before version 1.0: it cannot say that it is read-only.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// What to call at the end, if anything.
    pub deleter: Option<DLDeleter<Self>>,
}

/// Flag: the memory must not be written.
pub const READ_ONLY: u64 = 1;
/// Flag: the memory is a copy, and the consumer's alone until it calls the deleter.
pub const IS_COPIED: u64 = 1 << 1;
/// Flag: elements smaller than a byte have a byte each. There are no such elements here.
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
