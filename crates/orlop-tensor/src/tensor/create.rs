//! Creation of tensors. All functions take the path of [`Tensor::empty`]: shape, checked bytes, memory,
//! storage, strides.

use super::{IntoShape, Tensor};
use crate::error::{Error, Result};
use crate::plain::{Plain, dispatch_plain};
use crate::storage::{Storage, TensorImpl, TensorOptions};
use orlop_context::profile::{wants_shapes, with_shape};
use orlop_core::{Convert as _, DType, DTypeSet, Layout, MemoryFormat, Scalar, Shape, Strides};
use std::mem::ManuallyDrop;

impl Tensor {
    /// Creates a tensor of this shape with arbitrary, but initialised, elements.
    ///
    /// ```
    /// use orlop_core::{DType, MemoryFormat};
    /// use orlop_tensor::{Tensor, TensorOptions};
    ///
    /// let image = TensorOptions::from(DType::F16).memory_format(MemoryFormat::ChannelsLast);
    /// let tensor = Tensor::empty([8, 3, 32, 32], image)?;
    /// assert_eq!(tensor.strides(), &[3072, 1, 96, 3]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Layout`]: negative sizes, a size in bytes that overflows, a format for another number of
    /// dimensions. [`Error::Alloc`]: the allocation failed.
    #[inline]
    pub fn empty<'a>(shape: impl IntoShape, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        Self::empty_of(shape, options.into())
    }

    /// Generic over the type of the shape: if it has a constant number of dimensions, sizes and strides are
    /// computed in registers, and written once to their final place.
    fn empty_of(shape: impl IntoShape, mut options: TensorOptions<'_>) -> Result<Self> {
        let shape = shape.into_shape()?;
        let bytes = shape.checked_bytes(options.dtype.size())?;
        if options.format != MemoryFormat::Contiguous || wants_shapes() {
            return Self::empty_with(Layout::in_format(shape, options.format)?, &options);
        }
        // Not dropped if an allocator panics: a value with a drop on unwind would have to be in memory all
        // the time.
        let shape = ManuallyDrop::new(shape);
        match Storage::cell_in_memory(bytes, &mut options.memory) {
            Ok(cell) => {
                let layout = || Layout::contiguous(ManuallyDrop::into_inner(shape));
                Ok(Self { imp: Some(TensorImpl::first_of(cell, layout, options.dtype)) })
            }
            Err(error) => {
                drop(ManuallyDrop::into_inner(shape));
                Err(error)
            }
        }
    }

    /// Creates a tensor of this shape and these strides, in elements, in a storage of the smallest sufficient
    /// size.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`]; [`RankMismatch`](orlop_core::Error::RankMismatch).
    pub fn empty_strided<'a>(
        shape: impl IntoShape,
        strides: &[usize],
        options: impl Into<TensorOptions<'a>>,
    ) -> Result<Self> {
        let shape = shape.into_shape()?;
        let strides = Strides::for_shape(&shape, strides)?;
        Self::empty_with(Layout::new(shape, strides, 0)?, &options.into())
    }

    /// Creates a tensor of this shape without memory: every access fails with [`Error::Unbound`] until its
    /// storage is bound, to a part of a pool ([`Tensor::bind_in`]), to a block ([`Storage::bind_block`]), to
    /// planned memory ([`PlannedMemory::bind`](crate::planned::PlannedMemory::bind)), or to new memory with
    /// these options ([`Storage::bind`]).
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`], except for the allocation, and of [`Storage::unbound`].
    pub fn unbound<'a>(shape: impl IntoShape, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        let (shape, options) = (shape.into_shape()?, options.into());
        shape.checked_bytes(options.dtype.size())?;
        let layout = Layout::in_format(shape, options.format)?;
        Ok(Self::new(Storage::unbound(&options)?, layout, options.dtype))
    }

    /// Creates a tensor with this layout, in a storage of the smallest sufficient size.
    pub(crate) fn empty_with(layout: Layout, options: &TensorOptions<'_>) -> Result<Self> {
        let bytes = layout.byte_range(options.dtype.size())?.end;
        let bytes = if layout.is_empty() { 0 } else { bytes };
        let mut memory = options.memory;
        let cell = with_shape(layout.shape(), options.dtype, || Storage::cell_in_memory(bytes, &mut memory))?;
        Ok(Self { imp: Some(TensorImpl::first_of(cell, || layout, options.dtype)) })
    }

    /// Creates a tensor like this one: the same shape, dtype, device and kind, and the same strides if they
    /// are dense.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`]; [`Error::Undefined`].
    pub fn empty_like(&self) -> Result<Self> {
        self.empty_like_in(MemoryFormat::Preserve, self.dtype())
    }

    /// Creates a tensor like this one, with another format and dtype.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty_like`].
    pub fn empty_like_in(&self, format: MemoryFormat, dtype: DType) -> Result<Self> {
        self.empty_like_with(TensorOptions::from(dtype).memory_format(format))
    }

    /// Creates a tensor like this one, except for what the options set.
    ///
    /// ```
    /// use orlop_core::{DType, MemoryKind};
    /// use orlop_tensor::{Tensor, TensorOptions};
    ///
    /// let weights = Tensor::zeros([4, 3], DType::BF16)?.t()?;
    /// let copy = weights.empty_like_with(TensorOptions::new().kind(MemoryKind::Persistent).zeroed())?;
    /// assert_eq!((copy.dtype(), copy.memory_kind()), (DType::BF16, MemoryKind::Persistent));
    /// assert_eq!(copy.strides(), weights.strides());
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty_like`].
    pub fn empty_like_with<'a>(&self, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        let imp = self.imp()?;
        let options = options.into().or_as(imp);
        let strides = imp.layout.strides_in(options.format)?;
        let layout = Layout::new(imp.layout.shape().clone(), strides, 0)?;
        Self::empty_with(layout, &options)
    }

    /// Creates a tensor of zeros.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    #[inline]
    pub fn zeros<'a>(shape: impl IntoShape, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        Self::empty_of(shape, options.into().zeroed())
    }

    /// Creates a tensor of ones.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    pub fn ones<'a>(shape: impl IntoShape, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        Self::full(shape, 1u8, options)
    }

    /// Creates a tensor filled with `value`, cast to the dtype.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::full([2, 2], 1.5, DType::F32)?;
    /// assert_eq!(tensor.to_vec::<f32>()?, [1.5; 4]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    pub fn full<'a>(
        shape: impl IntoShape,
        value: impl Into<Scalar>,
        options: impl Into<TensorOptions<'a>>,
    ) -> Result<Self> {
        let tensor = Self::empty_of(shape, options.into())?;
        tensor.fill_(value)?;
        Ok(tensor)
    }

    /// Creates a tensor of the numbers from `start` to before `end`, `step` apart: one dimension of ⌈(end −
    /// start) / step⌉ elements.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// assert_eq!(Tensor::arange(0.0, 5.0, 2.0, DType::I32)?.to_vec::<i32>()?, [0, 2, 4]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::EmptyRange`] if the step is zero or has the wrong sign, or a bound is not finite; those of
    /// [`Tensor::empty`].
    pub fn arange<'a>(
        start: f64,
        end: f64,
        step: f64,
        options: impl Into<TensorOptions<'a>>,
    ) -> Result<Self> {
        let count = ((end - start) / step).ceil();
        let leads_there = count.is_finite() && count >= 0.0 && step != 0.0;
        if !leads_there || count > 2f64.powi(52) {
            return Err(Error::EmptyRange { start, end, step });
        }
        let options = options.into();
        if options.dtype.is_complex() {
            return Err(orlop_core::Error::DTypeNotIn { dtype: options.dtype, set: DTypeSet::Reals }.into());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        let count = count as usize;
        #[expect(clippy::cast_precision_loss, reason = "an index of an element")]
        Self::build([count].into_shape()?, &options, |index| Scalar::Float(start + index as f64 * step))
    }

    /// Creates the identity matrix of `rows` × `columns`.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    pub fn eye<'a>(rows: usize, columns: usize, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        let tensor = Self::zeros([rows, columns], options)?;
        tensor.diagonal(0, 0, 1)?.fill_(1u8)?;
        Ok(tensor)
    }

    /// Creates elements by row-major index. They are made on the host and copied if the device is another.
    pub(crate) fn build(
        shape: Shape,
        options: &TensorOptions<'_>,
        value: impl Fn(usize) -> Scalar,
    ) -> Result<Self> {
        let tensor = Self::empty_of(shape, *options)?;
        if tensor.device().is_cpu() && tensor.is_contiguous() {
            dispatch_plain!(options.dtype, T => {
                for (index, place) in tensor.as_mut_slice::<T>()?.iter_mut().enumerate() {
                    *place = T::plain(<T as Plain>::Element::from_scalar(value(index)));
                }
            });
            return Ok(tensor);
        }
        let host = TensorOptions::new().dtype(options.dtype).device(orlop_core::Device::CPU);
        tensor.copy_(&Self::build(tensor.shape().clone(), &host, value)?)?;
        Ok(tensor)
    }
}
