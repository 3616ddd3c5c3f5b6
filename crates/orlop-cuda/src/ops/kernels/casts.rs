//! Casts: the dtypes as the kernel knows them.
//!
//! One kernel has all pairs: what it reads becomes one of four forms (an unsigned or a signed integer, an
//! `f32`, an `f64`), from which it makes what it writes. All threads of a launch take the same branches.

use super::super::OnStream;
use super::launch::KernelWork;
use super::module::Kernels;
use crate::error::CudaError;
use orlop_alloc::engine_support::{LoopDim, StridedLoops};
use orlop_core::DType;

/// Returns `true` if a cast changes no bit: the same type, or integers of one size. `bool` may be normalised.
pub(in crate::ops) fn is_copy(to: DType, from: DType) -> bool {
    let same_size = to.is_integer() && from.is_integer() && to.size() == from.size();
    same_size || (to == from && to != DType::Bool)
}

/// Returns the kind of a dtype that is written and its place in the kind, as `cast.ptx` numbers them.
fn target(dtype: DType) -> (u32, u32) {
    let size = dtype.size().trailing_zeros();
    match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => (0, size),
        DType::U64 => (1, size),
        DType::Bool => (2, 0),
        DType::F8E4M3 => (3, 0),
        DType::F8E5M2 => (3, 1),
        DType::F16 => (3, 2),
        DType::BF16 => (3, 3),
        DType::F32 => (3, 4),
        DType::C64 => (3, 5),
        DType::F64 => (4, 0),
        DType::C128 => (4, 1),
    }
}

/// Returns the number of a dtype that is read, as `cast.ptx` lists them.
fn source(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => 0,
        DType::U8 => 1,
        DType::U16 => 2,
        DType::U32 => 3,
        DType::U64 => 4,
        DType::I8 => 5,
        DType::I16 => 6,
        DType::I32 => 7,
        DType::I64 => 8,
        DType::F8E4M3 => 9,
        DType::F8E5M2 => 10,
        DType::F16 => 11,
        DType::BF16 => 12,
        DType::F32 => 13,
        DType::F64 => 14,
        DType::C64 => 15,
        DType::C128 => 16,
    }
}

/// Returns the range of an integer to which floats are limited. `u8` takes the low bits of the `i64`.
fn range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Returns what a launch needs to know of a cast.
fn work(to: DType, from: DType) -> KernelWork {
    let (kind, detail) = target(to);
    let (low, high) = range(to);
    let value = [low.cast_unsigned(), high.cast_unsigned()];
    KernelWork { source: source(from), kind, detail, unused: 0, value }
}

impl Kernels {
    /// Casts an element at every step of the loops. Returns `false` if they are not aligned: then nothing was
    /// done.
    ///
    /// # Safety
    ///
    /// `DeviceOps::cast`.
    pub(in crate::ops) unsafe fn cast(
        &self,
        on: &OnStream<'_>,
        (to, to_dtype): (usize, DType),
        (from, from_dtype): (usize, DType),
        loops: StridedLoops<'_>,
    ) -> Result<bool, CudaError> {
        let is_aligned = |dtype: DType, address: usize, stride: fn(&LoopDim) -> usize| {
            let alignment = dtype.alignment().bytes();
            let mut all = loops.dims().iter().map(stride).chain([address]);
            all.all(|number| number.is_multiple_of(alignment))
        };
        if !is_aligned(to_dtype, to, |dim| dim.dst) || !is_aligned(from_dtype, from, |dim| dim.src) {
            return Ok(false);
        }
        // SAFETY: guaranteed by the caller; aligned as their dtypes, which no access exceeds.
        unsafe { self.cast_loops(on, (to, from), work(to_dtype, from_dtype), loops.dims()) }?;
        Ok(true)
    }
}
