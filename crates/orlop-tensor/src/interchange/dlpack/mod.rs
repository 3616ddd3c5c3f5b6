//! DLPack: tensors from and for other frameworks, in memory.
//!
//! DLPack is a C structure that says where a tensor's elements lie and whom to call when they are no longer used
//! (<https://dmlc.github.io/dlpack/latest/>). NumPy, PyTorch, JAX, CuPy and many more exchange tensors by it, without a copy.
//! The structures are in this module under the header's names, so that no binding is needed to pass them on.
//!
//! # Out
//!
//! | function | the consumer may | before |
//! |---|---|---|
//! | [`export`] | read | nothing |
//! | [`export_mut`] | read and write | a copy that was put off is made |
//! | [`export_legacy`] | read and write, by the structure from before 1.0 | the same |
//! | [`export_copy`] | do what it wants: it has its own | all elements are copied |
//!
//! Each gives a handle ([`DlpackTensor`]) that calls the deleter when dropped, and that becomes a bare pointer for C by
//! [`Managed::into_raw`]. The memory lives until the deleter is called.
//!
//! # In
//!
//! [`import`] and [`import_legacy`] make a tensor over the producer's memory. What comes is checked as far as it can be:
//! another major version, vector types, unknown dtypes and devices, negative strides, sizes beyond the address space,
//! elements that are not aligned are typed errors, and the deleter is called all the same. That the pointers are what they
//! say cannot be checked, so both are `unsafe`.
//!
//! # What nobody watches
//!
//! The guards of a storage ([`Error::Borrowed`](crate::Error::Borrowed)) keep readers from writers among its own tensors.
//! The other side of an exchange does not ask them: it is for the program to see that nobody reads while somebody writes.
//! Nor does anybody wait for a device: work on the memory has to be done, or be before the other side's on its stream, when
//! a tensor goes over, and when its deleter is called.

mod abi;
mod convert;
mod error;
mod export;
mod import;
mod managed;

pub use self::abi::{
    DLDataType, DLDataTypeCode, DLDeleter, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor, IS_COPIED, IS_SUBBYTE_TYPE_PADDED, READ_ONLY,
};
pub use self::error::DlpackError;
pub use self::export::{export, export_copy, export_legacy, export_mut};
pub use self::import::{import, import_legacy};
pub use self::managed::{DlpackTensor, LegacyDlpackTensor, Managed, ManagedTensor};
