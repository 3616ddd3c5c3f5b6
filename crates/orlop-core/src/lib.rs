//! Data types that all layers of orlop share: dtypes, devices, memory kinds, shapes, strides and layouts.
//!
//! All arithmetic on sizes, strides and alignments is done here, once and checked, so that an overflow is a
//! typed error and not a short allocation. The crate has no `unsafe`, does not need `std` and never touches
//! tensor memory.
//!
//! | concept | items |
//! |---|---|
//! | devices, streams and memory kinds | [`Device`], [`DeviceType`], [`StreamId`], [`MemoryKind`] |
//! | byte counts | [`bytes`], [`ByteSize`], [`Alignment`] |
//! | element types | [`DType`], [`Element`], [`dispatch!`], [`F8E4M3`], [`F8E5M2`] |
//! | numbers | [`Scalar`], [`cast`], [`promote()`] |
//! | layouts | [`Shape`], [`Strides`], [`Layout`], [`MemoryFormat`], [`Overlap`] |
//! | views | [`Layout::slice`], [`Layout::transpose`], [`Layout::view`], [`Reshaped`], [`Pieces`] |
//! | broadcasting | [`Layout::expand`], [`broadcast_shapes`] |
//! | PyTorch's allocator settings and sizes, as arithmetic | [`torch`] |
//! | errors | [`Error`] |
//!
//! ```
//! use orlop_core::{DType, Layout, Shape};
//!
//! let layout = Layout::contiguous(Shape::new(&[2, 3])?);
//! assert_eq!(layout.byte_range(DType::F16.size())?, 0..12);
//! # Ok::<(), orlop_core::Error>(())
//! ```
#![no_std]
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

extern crate alloc;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod align;
mod byte_size;
pub mod bytes;
mod device;
mod dim_int;
mod dims;
mod dims_newtype;
mod dispatch;
mod dtype;
mod element;
mod error;
mod float8;
mod format;
mod kind;
mod layout;
mod overlap;
mod preserve;
mod promote;
mod random;
mod scalar;
mod shape;
mod stack_str;
mod stream;
mod strides;
pub mod torch;
mod views;

pub use align::Alignment;
pub use byte_size::ByteSize;
pub use device::{Device, DeviceType};
pub use dim_int::DimInt;
pub use dispatch::DTypeSet;
pub use dtype::{DType, DTypeFamily};
pub use element::Element;
pub use error::{Error, Expected, LayoutPart, Quantity, Result};
pub use float8::{F8E4M3, F8E5M2};
pub use format::MemoryFormat;
pub use half::{bf16, f16};
pub use kind::MemoryKind;
pub use layout::Layout;
pub use num_complex::Complex;
pub use overlap::Overlap;
pub use promote::promote;
pub use random::SplitMix64;
pub use scalar::{Convert, Scalar, cast};
pub use shape::Shape;
pub use stream::StreamId;
pub use strides::Strides;
pub use views::{Pieces, Reshaped, broadcast_shapes};
