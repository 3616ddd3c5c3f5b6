//! Tensors from existing data: slices, vectors, nested arrays, foreign memory.

use super::{IntoShape, Tensor};
use crate::error::{Error, Result};
use crate::plain::Plain;
use crate::storage::{Storage, TensorOptions};
use orlop_core::{DType, Element, Layout, MemoryKind, Shape};
use std::ptr::NonNull;

impl Tensor {
    /// Copies elements to a tensor of one dimension.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// assert_eq!(Tensor::from_slice(&[true, false])?.dtype(), DType::Bool);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    pub fn from_slice<E: Element>(elements: &[E]) -> Result<Self> {
        Self::from_slice_in([elements.len()], elements, TensorOptions::new())
    }

    /// Copies elements to a tensor, in row-major order. The dtype is that of the elements, whatever the
    /// options say.
    ///
    /// # Errors
    ///
    /// [`Error::CountMismatch`]; those of [`Tensor::empty`].
    pub fn from_slice_in<'a, E: Element>(
        shape: impl IntoShape,
        elements: &[E],
        options: impl Into<TensorOptions<'a>>,
    ) -> Result<Self> {
        let shape = shape.into_shape()?;
        check_count(shape.numel(), elements.len())?;
        let tensor = Self::empty(shape, options.into().dtype(E::DTYPE))?;
        if tensor.device().is_cpu() && tensor.is_contiguous() {
            tensor.storage()?.write()?.copy_from_slice(bytemuck::cast_slice(elements));
        } else {
            let layout = tensor.layout().clone();
            tensor.copy_(&Self::from_slice(elements)?.view(layout.shape())?)?;
        }
        Ok(tensor)
    }

    /// Converts a vector without a copy. The vector is dropped with the last tensor over it.
    ///
    /// ```
    /// use orlop_tensor::Tensor;
    ///
    /// let data = vec![1i32, 2, 3, 4, 5, 6];
    /// let address = data.as_ptr();
    /// let tensor = Tensor::from_vec([2, 3], data)?;
    /// assert_eq!(tensor.as_slice::<i32>()?.as_ptr(), address);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::CountMismatch`].
    pub fn from_vec<T: Plain>(shape: impl IntoShape, elements: Vec<T>) -> Result<Self> {
        let shape = shape.into_shape()?;
        check_count(shape.numel(), elements.len())?;
        let mut elements = elements;
        let bytes = size_of_val(elements.as_slice());
        let ptr = NonNull::from(elements.as_mut_slice()).cast::<u8>();
        // SAFETY: the vector's elements do not move when it does, and it is accessed through the storage
        // only.
        let storage = unsafe { Storage::foreign(ptr, bytes, MemoryKind::Default, elements) };
        Ok(Self::new(storage, Layout::contiguous(shape), T::DTYPE))
    }

    /// Copies nested arrays, slices or vectors, which determine the shape; a single number gives no
    /// dimensions.
    ///
    /// ```
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::from_nested(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(tensor.sizes(), [2, 3]);
    /// assert!(Tensor::from_nested(&vec![vec![1u8, 2], vec![3]]).is_err());
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ragged`]; those of [`Tensor::empty`].
    pub fn from_nested<N: Nested>(data: &N) -> Result<Self> {
        let mut sizes = Vec::new();
        data.sizes(&mut sizes);
        let shape = Shape::new(&sizes)?;
        let mut elements = Vec::new();
        data.collect(&sizes, &mut elements)?;
        Self::from_slice_in(shape, &elements, TensorOptions::new())
    }

    /// Creates a row-major tensor over foreign memory. `owner` is dropped once, when the last user is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] for invalid sizes.
    ///
    /// # Safety
    ///
    /// Those of [`Storage::foreign`], for the bytes that the shape and the dtype need.
    pub unsafe fn from_foreign<O: Send + 'static>(
        ptr: NonNull<u8>,
        shape: impl IntoShape,
        dtype: DType,
        owner: O,
    ) -> Result<Self> {
        let shape = shape.into_shape()?;
        let bytes = shape.checked_bytes(dtype.size())?;
        // SAFETY: guaranteed by the caller.
        let storage = unsafe { Storage::foreign(ptr, bytes, MemoryKind::Default, owner) };
        Ok(Self::new(storage, Layout::contiguous(shape), dtype))
    }

    /// Creates a row-major tensor in a shared storage, `byte_offset` bytes from its start, without an
    /// allocation.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::{Storage, Tensor, TensorOptions};
    ///
    /// let pool = Storage::new(4096, &TensorOptions::new())?;
    /// let tensor = Tensor::bind(&pool, 256, [16, 16], DType::F32)?;
    /// tensor.fill_(1.0)?;
    /// assert!(Tensor::bind(&pool, 4000, [16, 16], DType::F32).is_err());
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage); [`Error::Misaligned`] if the address is not aligned
    /// for the dtype.
    pub fn bind(pool: &Storage, byte_offset: usize, shape: impl IntoShape, dtype: DType) -> Result<Self> {
        let shape = shape.into_shape()?;
        let bytes = shape.checked_bytes(dtype.size())?;
        let end = orlop_core::bytes::checked_add(byte_offset, bytes)?;
        let part = pool.slice(byte_offset..end)?;
        let address = pool.block()?.address().wrapping_add(part.start());
        if bytes > 0 && !dtype.alignment().is_aligned(address) {
            return Err(Error::Misaligned { address, align: dtype.alignment().bytes() });
        }
        Ok(Self::new(part, Layout::contiguous(shape), dtype))
    }
}

fn check_count(expected: usize, actual: usize) -> Result<()> {
    if expected == actual { Ok(()) } else { Err(Error::CountMismatch { expected, actual }) }
}

/// Nested data: a number, or an array, slice or vector of nested data.
pub trait Nested {
    /// The type of the numbers.
    type Element: Element;

    /// Appends the sizes of the first parts, outermost first.
    #[doc(hidden)]
    fn sizes(&self, sizes: &mut Vec<usize>);

    /// Appends the numbers, in order.
    #[doc(hidden)]
    fn collect(&self, sizes: &[usize], elements: &mut Vec<Self::Element>) -> Result<()>;
}

macro_rules! number {
    ($($rust:ty),+ $(,)?) => {$(
        impl Nested for $rust {
            type Element = $rust;

            fn sizes(&self, _: &mut Vec<usize>) {}

            fn collect(&self, _: &[usize], elements: &mut Vec<$rust>) -> Result<()> {
                elements.push(*self);
                Ok(())
            }
        }
    )+};
}

number!(
    bool,
    u8,
    u16,
    u32,
    u64,
    i8,
    i16,
    i32,
    i64,
    orlop_core::F8E4M3,
    orlop_core::F8E5M2,
    orlop_core::f16,
    orlop_core::bf16,
    f32,
    f64,
    orlop_core::Complex<f32>,
    orlop_core::Complex<f64>,
);

impl<N: Nested> Nested for [N] {
    type Element = N::Element;

    fn sizes(&self, sizes: &mut Vec<usize>) {
        sizes.push(self.len());
        if let Some(first) = self.first() {
            first.sizes(sizes);
        }
    }

    fn collect(&self, sizes: &[usize], elements: &mut Vec<N::Element>) -> Result<()> {
        // Fewer sizes than levels: an outer first part was empty, so all must be empty.
        let (first, rest) = sizes.split_first().map_or((0, sizes), |(&first, rest)| (first, rest));
        if self.len() != first {
            return Err(Error::Ragged { first, other: self.len() });
        }
        self.iter().try_for_each(|part| part.collect(rest, elements))
    }
}

impl<N: Nested, const LEN: usize> Nested for [N; LEN] {
    type Element = N::Element;

    fn sizes(&self, sizes: &mut Vec<usize>) {
        self.as_slice().sizes(sizes);
    }

    fn collect(&self, sizes: &[usize], elements: &mut Vec<N::Element>) -> Result<()> {
        self.as_slice().collect(sizes, elements)
    }
}

impl<N: Nested> Nested for Vec<N> {
    type Element = N::Element;

    fn sizes(&self, sizes: &mut Vec<usize>) {
        self.as_slice().sizes(sizes);
    }

    fn collect(&self, sizes: &[usize], elements: &mut Vec<N::Element>) -> Result<()> {
        self.as_slice().collect(sizes, elements)
    }
}

impl<N: Nested + ?Sized> Nested for &N {
    type Element = N::Element;

    fn sizes(&self, sizes: &mut Vec<usize>) {
        N::sizes(self, sizes);
    }

    fn collect(&self, sizes: &[usize], elements: &mut Vec<N::Element>) -> Result<()> {
        N::collect(self, sizes, elements)
    }
}
