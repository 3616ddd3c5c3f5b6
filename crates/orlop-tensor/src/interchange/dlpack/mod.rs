//! DLPack: exchange of tensors with other frameworks, in memory.
//!
//! DLPack is a C structure that describes a tensor's memory and names a function to release it
//! (<https://dmlc.github.io/dlpack/latest/>). NumPy, PyTorch, JAX, CuPy and others exchange tensors with it,
//! without a copy. This module defines the structures under the header's names, so that no binding is needed.
//!
//! # Export
//!
//! | function | the consumer may | copies |
//! |---|---|---|
//! | [`export`] | read | nothing |
//! | [`export_mut`] | read and write | only a deferred copy |
//! | [`export_legacy`] | read and write, with the structure from before 1.0 | only a deferred copy |
//! | [`export_copy`] | read and write a copy of its own | always |
//!
//! Each returns an owned handle ([`DlpackTensor`]) that calls the deleter when dropped; [`Managed::into_raw`]
//! turns it into a raw pointer for C. The memory stays valid until the deleter is called.
//!
//! # Import
//!
//! [`import`] creates a tensor over the producer's memory. Another major version, vector types, unknown
//! dtypes and devices, negative strides, sizes beyond the address space and misaligned elements are typed
//! errors, after which the deleter is called. The pointers cannot be checked, so the function is `unsafe`.
//!
//! # What is not checked
//!
//! The guards of a storage ([`Error::Borrowed`](crate::Error::Borrowed)) exclude readers and writers among
//! its own tensors only. The program has to ensure that the other framework does not read while orlop writes,
//! and the reverse. Neither side waits for a device: when a tensor is passed on and when its deleter is
//! called, work on the memory must be done, or ordered before the other side's on its stream.

pub(crate) mod abi;
mod convert;
mod export;
mod import;
mod managed;

pub use self::abi::{
    DLDataType, DLDataTypeCode, DLDeleter, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor, IS_COPIED, IS_SUBBYTE_TYPE_PADDED, READ_ONLY,
};
pub use self::export::{export, export_copy, export_legacy, export_mut};
pub use self::import::import;
pub use self::managed::{DlpackTensor, LegacyDlpackTensor, Managed, ManagedTensor};
pub use crate::error::dlpack::DlpackError;
