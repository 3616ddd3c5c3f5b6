//! Tensors without operators: handles, storage, views, copy-on-write, accessors, conversion and interchange.
//!
//! # Map
//!
//! | layer | what | items |
//! |---|---|---|
//! | handle | a view of a storage; cloning costs one count | [`Tensor`], [`TensorOptions`] |
//! | storage | bytes shared by any number of tensors: lazy copies, resizing, access rules | [`Storage`] |
//! | block | memory from an allocator, or foreign memory | [`orlop_alloc::MemoryBlock`] |
//! | interchange | files, other frameworks, other crates | [`interchange`] |
//! | print | values and metadata as text, diagnosis of a tensor as a value | [`PrintOptions`], [`diagnose`] |
//! | access | elements as slices or by index | [`Accessor`], [`TensorSlice`], [`Plain`], [`Bool8`] |
//! | kernels | address, sizes and strides by value | [`PackedAccessor`] |
//!
//! Allocation takes one path: [`Tensor::empty`] → checked bytes and strides (`orlop-core`) →
//! [`Context`](orlop_context::Context) → allocator → block → [`Storage`] → [`Tensor`]. Release takes the
//! reverse path: last tensor → last storage → block → its allocator.
//!
//! ```
//! use orlop_core::DType;
//! use orlop_tensor::Tensor;
//!
//! let tensor = Tensor::arange(0.0, 12.0, 1.0, DType::F32)?.view([3, 4])?;
//! let columns = tensor.slice(1, Some(1), Some(3), 1)?;
//! columns.fill_(0.5)?;
//! assert_eq!(tensor.select(0, 0)?.to_vec::<f32>()?, [0.0, 0.5, 0.5, 3.0]);
//! # Ok::<(), orlop_tensor::Error>(())
//! ```
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod borrows;
#[cfg(doctest)]
mod compile_fail;
pub mod diagnose;
mod element_tensor;
mod error;
mod host;
pub mod interchange;
#[cfg(feature = "safetensors")]
mod map;
mod plain;
pub mod planned;
mod recycle;
mod shared;
mod storage;
mod sync;
mod tensor;

pub use self::element_tensor::ElementTensor;
#[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
pub use self::error::NoSuchTensor;
pub use self::error::{Borrower, Error, HookFault, Result, Revocation, RevokedBy, Unresizable};
pub use self::plain::{Bool8, Plain};
pub use self::storage::{
    BindError, Storage, StorageHook, TensorOptions, TensorSlice, TensorSliceMut, clear_storage_hook,
    set_storage_hook,
};
pub use self::tensor::{
    Accessor, AccessorMut, DisplayTensor, Elements, ElementsMut, IntoShape, Nested, PackedAccessor,
    PackedIndex, PrintOptions, SubAccessor, SubAccessorMut, Tensor, TensorElements, TensorElementsMut,
};
