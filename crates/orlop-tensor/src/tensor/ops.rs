//! Operations on elements: copy, cast, fill.
//!
//! An operation holds a write guard of its destination and read guards of its sources. If both are one
//! storage, the source is copied first: the result is as if everything were read before anything is written.

use super::{Tensor, device};
use crate::error::Result;
use crate::storage::{TensorImpl, TensorOptions};
use orlop_core::{Convert as _, DType, Device, Layout, MemoryFormat, Scalar};
use orlop_host::kernels;
use std::borrow::Cow;
use std::ptr::NonNull;

impl Tensor {
    /// Writes the elements of `source` into this tensor, cast to its dtype, from any device and strides;
    /// `source` is broadcast to its shape.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::zeros([2, 3], DType::I64)?;
    /// tensor.copy_(&Tensor::from_slice(&[1.0f32, 2.0, 3.9])?)?;
    /// assert_eq!(tensor.to_vec::<i64>()?, [1, 2, 3, 1, 2, 3]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) if the shapes do not broadcast;
    /// [`Error::InternalOverlap`](crate::Error::InternalOverlap);
    /// [`Error::Borrowed`](crate::Error::Borrowed); [`Error::ReadOnly`](crate::Error::ReadOnly); the errors
    /// of the devices.
    pub fn copy_(&self, source: &Self) -> Result<()> {
        let (to, from) = (self.imp()?, source.imp()?);
        to.check_apart()?;
        let layout = from.layout.broadcast_to(to.layout.shape())?;
        if !to.storage().is_alias_of(from.storage()) {
            return write_from(to, from, &layout);
        }
        if layout == to.layout && to.dtype == from.dtype && to.storage().start() == from.storage().start() {
            // A copy to itself.
            return Ok(());
        }
        let apart = source.duplicate_in(MemoryFormat::Contiguous)?;
        let apart = apart.imp()?;
        write_from(to, apart, &apart.layout.broadcast_to(to.layout.shape())?)
    }

    /// Writes `value`, cast to the dtype, into every element.
    ///
    /// # Errors
    ///
    /// [`Error::InternalOverlap`](crate::Error::InternalOverlap);
    /// [`Error::Borrowed`](crate::Error::Borrowed); [`Error::ReadOnly`](crate::Error::ReadOnly); the errors
    /// of the device.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        let imp = self.imp()?;
        imp.check_apart()?;
        let value = value.into();
        let guard = imp.write()?;
        if !imp.storage().device().is_cpu() {
            return device::fill(imp, guard.block(), guard.bytes(), value);
        }
        let origin = imp.origin(guard.host()?, guard.bytes())?;
        // SAFETY: all elements are inside (`origin`), do not overlap, and are exclusive by the guard.
        unsafe { kernels::fill(origin.as_ptr(), &imp.layout, imp.dtype, value) };
        Ok(())
    }

    /// Writes zeros.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::fill_`].
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0u8)
    }

    /// Copies the elements to a new tensor, with the strides of this one if they are dense (PyTorch's
    /// `clone`).
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`](crate::Error::Borrowed) during a write; out of memory.
    pub fn duplicate(&self) -> Result<Self> {
        self.duplicate_in(MemoryFormat::Preserve)
    }

    /// [`Tensor::duplicate`] with this format.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::duplicate`]; a format for another number of dimensions.
    pub fn duplicate_in(&self, format: MemoryFormat) -> Result<Self> {
        let copy = self.empty_like_in(format, self.dtype())?;
        copy.copy_(self)?;
        Ok(copy)
    }

    /// Creates an independent tensor with the same elements in constant time: they are copied at the first
    /// write to one of the two. See [`Storage::lazy_clone`](crate::Storage::lazy_clone).
    ///
    /// # Errors
    ///
    /// Those of [`Storage::lazy_clone`](crate::Storage::lazy_clone).
    pub fn lazy_clone(&self) -> Result<Self> {
        let imp = self.imp()?;
        Ok(Self::new(imp.storage().lazy_clone()?, imp.layout.clone(), imp.dtype))
    }

    /// Returns the elements in this format: the same tensor if it has it, else a copy.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::duplicate_in`].
    pub fn contiguous(&self, format: MemoryFormat) -> Result<Self> {
        Ok(self.as_contiguous(format)?.into_owned())
    }

    /// [`Tensor::contiguous`] without a reference count if nothing has to be copied.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::contiguous`].
    pub fn as_contiguous(&self, format: MemoryFormat) -> Result<Cow<'_, Self>> {
        let imp = self.imp()?;
        if format == MemoryFormat::Preserve || imp.layout.is_contiguous_in(format) {
            return Ok(Cow::Borrowed(self));
        }
        self.duplicate_in(format).map(Cow::Owned)
    }

    /// Returns the elements with another dtype: the same tensor if it has it, else a copy.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::duplicate`].
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        self.to(dtype)
    }

    /// Returns the elements on another device: the same tensor if it is there, else a copy. A host-only kind
    /// becomes the default kind on other devices.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::duplicate`]; the device has no allocator, or cannot copy.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        self.to(TensorOptions::new().device(device))
    }

    /// Returns a tensor with what the options set, and otherwise the dtype, device and kind of this one, and
    /// its strides if they are dense. It is the same tensor if it has all that (including the allocator and
    /// the alignment, if set), else a copy.
    ///
    /// ```
    /// use orlop_core::{DType, Device};
    /// use orlop_tensor::{Tensor, TensorOptions};
    ///
    /// let ids = Tensor::from_slice(&[1i64, 2, 3])?;
    /// let there = ids.to(TensorOptions::new().device(Device::CPU))?;
    /// assert!(there.is_same(&ids) && there.dtype() == DType::I64);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::duplicate`].
    pub fn to<'a>(&self, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        let imp = self.imp()?;
        let options = options.into().or_as(imp);
        let formatted =
            options.format == MemoryFormat::Preserve || imp.layout.is_contiguous_in(options.format);
        if formatted && imp.dtype == options.dtype && options.is_memory_of(imp)? {
            return Ok(self.clone());
        }
        let copy = self.empty_like_with(options)?;
        copy.copy_(self)?;
        Ok(copy)
    }
}

/// Copies from another storage; `layout` is the source's, with the shape of the destination.
fn write_from(to: &TensorImpl, from: &TensorImpl, layout: &Layout) -> Result<()> {
    let (reading, writing) = (from.read()?, to.write()?);
    if !to.storage().device().is_cpu() || !from.storage().device().is_cpu() {
        let (to_memory, from_memory) =
            ((writing.block(), writing.bytes()), (reading.block(), reading.bytes()));
        return device::copy(to, to_memory, from, from_memory, layout);
    }
    let source = from.origin(reading.host()?, reading.bytes())?;
    let destination = to.origin(writing.host()?, writing.bytes())?;
    // SAFETY: both are inside their storages (`origin`; broadcasting keeps the span), in distinct blocks (the
    // writer's has no other owner), accessible by the guards, and the destination's elements do not overlap.
    unsafe { copy_or_cast(destination, &to.layout, to.dtype, source, layout, from.dtype) };
    Ok(())
}

/// Copies a tensor's elements to host memory of the same dtype. On success each element of `layout` is
/// written.
///
/// # Safety
///
/// `to` is valid for writes over the span of `layout`, and nothing else accesses it; the layout has the
/// tensor's shape and does not overlap itself.
pub(super) unsafe fn copy_out(imp: &TensorImpl, to: NonNull<u8>, layout: &Layout) -> Result<()> {
    let guard = imp.read()?;
    if !imp.storage().device().is_cpu() {
        // SAFETY: guaranteed by the caller.
        return unsafe { device::copy_out(imp, guard.block(), guard.bytes(), to, layout) };
    }
    let source = imp.origin(guard.host()?, guard.bytes())?;
    // SAFETY: the source is inside its storage, and is not written meanwhile; the rest is guaranteed by the
    // caller.
    unsafe { copy_or_cast(to, layout, imp.dtype, source, &imp.layout, imp.dtype) };
    Ok(())
}

/// # Safety
///
/// 1. both layouts have one shape, and their spans, from where their offsets count, are valid memory;
/// 2. nothing else accesses the destination, nothing writes the source, and they do not overlap;
/// 3. the destination does not overlap itself.
pub(crate) unsafe fn copy_or_cast(
    to: NonNull<u8>,
    to_layout: &Layout,
    to_dtype: DType,
    from: NonNull<u8>,
    from_layout: &Layout,
    from_dtype: DType,
) {
    let (to, from) = (to.as_ptr(), from.as_ptr());
    // Bytes of a bool may be anything; a cast normalises them.
    if to_dtype == from_dtype && to_dtype != DType::Bool {
        // SAFETY: guaranteed by the caller.
        unsafe { kernels::copy(to, to_layout, from, from_layout, to_dtype.size()) };
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { kernels::cast(to, to_layout, to_dtype, from, from_layout, from_dtype) };
    }
}

/// Returns the bytes of `value` as an element of `dtype`, and their number.
pub(crate) fn pattern(value: Scalar, dtype: DType) -> ([u8; 16], usize) {
    let mut bytes = [0; 16];
    orlop_core::dispatch!(dtype, T => {
        let element = T::from_scalar(value);
        let element = bytemuck::bytes_of(&element);
        bytes[..element.len()].copy_from_slice(element);
    });
    (bytes, dtype.size())
}
