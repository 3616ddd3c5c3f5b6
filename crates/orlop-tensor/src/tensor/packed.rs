//! Accessors for device kernels: address, sizes and strides by value.
//!
//! A kernel cannot follow the host's pointers to a shape, so they are packed into its argument. Most kernels
//! compute faster with 32-bit indices; whether a tensor allows them is checked once, here.

use super::Tensor;
use crate::borrows::Flags;
use crate::error::{Error, Result};
use crate::plain::Plain;
use crate::storage::TensorImpl;
use bytemuck::{Pod, Zeroable};
use orlop_alloc::MemoryBlock;
use std::marker::PhantomData;
use std::mem::offset_of;

mod sealed {
    pub trait Sealed {}
}

/// The index type of a [`PackedAccessor`]: `i32` or `i64`, as in PyTorch's kernels.
pub trait PackedIndex: sealed::Sealed + Pod + Eq + std::fmt::Debug + TryFrom<usize> + TryInto<usize> {
    /// The largest index.
    const MAX: usize;
}

impl sealed::Sealed for i32 {}
impl sealed::Sealed for i64 {}

impl PackedIndex for i32 {
    const MAX: usize = Self::MAX.unsigned_abs() as usize;
}

impl PackedIndex for i64 {
    // Sizes, strides and offsets never exceed it.
    const MAX: usize = isize::MAX.unsigned_abs();
}

/// The elements of a tensor of `N` dimensions, as a kernel argument: see [`Tensor::packed_accessor`].
///
/// The element at `index` is at `data + size_of::<T>() * Σ index[i] * strides[i]`. The layout in memory is
/// that of PyTorch's `GenericPackedTensorAccessor`, and of this C declaration, without padding:
///
/// ```c
/// struct { T *data; I sizes[N]; I strides[N]; };
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedAccessor<T: Plain, const N: usize, I: PackedIndex> {
    /// The address of the first element, on the tensor's device.
    pub data: u64,
    /// The sizes.
    pub sizes: [I; N],
    /// The strides, in elements. That of a dimension with fewer than two elements is never used, and is 0 if
    /// it does not fit.
    pub strides: [I; N],
    element: PhantomData<T>,
}

// SAFETY: all fields are; zero sizes describe no elements.
unsafe impl<T: Plain, const N: usize, I: PackedIndex> Zeroable for PackedAccessor<T, N, I> {}
// SAFETY: `repr(C)` of `Pod` fields. There is no padding: the indices are of 4 or 8 bytes, 2 N of them follow
// 8 bytes, so the size is a multiple of the alignment of 8.
unsafe impl<T: Plain, const N: usize, I: PackedIndex> Pod for PackedAccessor<T, N, I> {}

const _: () = {
    type Narrow = PackedAccessor<f32, 3, i32>;
    type Wide = PackedAccessor<f32, 3, i64>;
    assert!(size_of::<Narrow>() == 8 + 2 * 3 * 4 && align_of::<Narrow>() == align_of::<u64>());
    assert!(size_of::<Wide>() == 8 + 2 * 3 * 8 && align_of::<Wide>() == align_of::<u64>());
    assert!(offset_of!(Narrow, data) == 0 && offset_of!(Narrow, sizes) == 8);
    assert!(offset_of!(Narrow, strides) == 8 + 3 * 4 && offset_of!(Wide, strides) == 8 + 3 * 8);
    assert!(size_of::<PackedAccessor<u8, 0, i32>>() == 8 && size_of::<PackedAccessor<u8, 1, i32>>() == 16);
};

impl<T: Plain, const N: usize, I: PackedIndex> PackedAccessor<T, N, I> {
    fn new(imp: &TensorImpl, block: &MemoryBlock, bytes: usize) -> Result<Self> {
        let layout = &imp.layout;
        if layout.ndim() != N {
            return Err(Error::RankMismatch { expected: N, actual: layout.ndim() });
        }
        block.check_reachable()?;
        if !fits(imp, I::MAX) {
            return Err(Error::IndexTooNarrow { bits: 8 * size_of::<I>() });
        }
        let first =
            if layout.is_empty() { None } else { Some(imp.first(block.ptr, bytes, align_of::<T>())?) };
        let (mut sizes, mut strides) = ([I::zeroed(); N], [I::zeroed(); N]);
        let narrow = |index: usize| I::try_from(index).ok();
        for (dim, (&size, &stride)) in layout.shape().iter().zip(layout.strides().iter()).enumerate() {
            sizes[dim] = narrow(size).unwrap_or_else(I::zeroed);
            strides[dim] = narrow(stride).unwrap_or_else(I::zeroed);
        }
        let data = first.map_or(0, |first| first.as_ptr().expose_provenance() as u64);
        Ok(Self { data, sizes, strides, element: PhantomData })
    }

    /// Returns the address of an element, as a kernel computes it, or `None` if the index is out of bounds.
    #[must_use]
    pub fn address_of(&self, index: [usize; N]) -> Option<u64> {
        let mut offset = 0u64;
        for ((index, size), stride) in index.into_iter().zip(self.sizes).zip(self.strides) {
            let (size, stride): (usize, usize) = (size.try_into().ok()?, stride.try_into().ok()?);
            if index >= size {
                return None;
            }
            offset = offset.checked_add(index.checked_mul(stride)? as u64)?;
        }
        self.data.checked_add(offset.checked_mul(size_of::<T>() as u64)?)
    }
}

/// Returns `true` if no size, count or offset of the elements exceeds `max`.
fn fits(imp: &TensorImpl, max: usize) -> bool {
    let layout = &imp.layout;
    let range = layout.element_range();
    layout.numel() <= max
        && range.len().saturating_sub(1) <= max
        && layout.shape().iter().all(|&size| size <= max)
}

impl Tensor {
    /// Returns `true` if the sizes, the number of elements and the offset of each element, in elements, fit
    /// into an `i32`, so that kernels may compute with 32-bit indices. `true` for an undefined tensor.
    #[must_use]
    pub fn can_use_32bit_index(&self) -> bool {
        self.imp().map_or(true, |imp| fits(imp, <i32 as PackedIndex>::MAX))
    }

    /// Returns the address, the sizes and the strides by value, with 32- or 64-bit indices (`i32`, `i64`),
    /// for kernels that read the elements. No guard is held: the caller keeps the tensor until the kernel is
    /// done, or records the kernel's stream ([`Tensor::record_stream`]), and orders the kernel with other
    /// work.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::F32)?.view([2, 3])?.t()?;
    /// let argument = tensor.packed_accessor::<f32, 2, i32>()?;
    /// assert_eq!((argument.sizes, argument.strides), ([3, 2], [1, 3]));
    /// assert_eq!(argument.address_of([2, 1]), Some(argument.data + 5 * 4));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DTypeMismatch`], [`Error::RankMismatch`], [`Error::Misaligned`]; [`Error::IndexTooNarrow`]
    /// for 32-bit indices unless [`Tensor::can_use_32bit_index`]; [`Error::Borrowed`] during a write.
    pub fn packed_accessor<T: Plain, const N: usize, I: PackedIndex>(
        &self,
    ) -> Result<PackedAccessor<T, N, I>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        let guard = imp.read()?;
        PackedAccessor::new(imp, guard.block(), guard.bytes())
    }

    /// [`Tensor::packed_accessor`] for kernels that write the elements. A deferred copy is made first, and
    /// later lazy clones are real copies.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::packed_accessor`]; [`Error::Borrowed`] during a read; [`Error::ReadOnly`];
    /// [`Error::InternalOverlap`] if elements share memory.
    pub fn packed_accessor_mut<T: Plain, const N: usize, I: PackedIndex>(
        &self,
    ) -> Result<PackedAccessor<T, N, I>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        imp.check_apart()?;
        let guard = imp.write()?;
        let packed = PackedAccessor::new(imp, guard.block(), guard.bytes())?;
        imp.storage().cell().borrows.set(Flags::ESCAPED);
        Ok(packed)
    }
}
