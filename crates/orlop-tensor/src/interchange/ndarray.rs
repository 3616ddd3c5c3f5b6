//! Conversion to and from `ndarray`'s arrays.
//!
//! | from | to | copies |
//! |---|---|---|
//! | any array or view, by reference | [`Tensor::try_from`] | always |
//! | an owned array | [`Tensor::from_ndarray`] | only if a stride is negative |
//! | a tensor | [`Tensor::as_ndarray`], [`Tensor::as_mut_ndarray`] | never: a view under a guard |
//! | a tensor | [`Tensor::to_ndarray`] | always |
//!
//! Both sides have strides, so views convert to views, except for negative strides, which tensors do not
//! have. Tensors created here are in host memory, whatever the context's default device.

use crate::error::Result;
use crate::plain::{Bool8, Plain};
use crate::storage::TensorOptions;
use crate::storage::{ReadGuard, Storage, WriteGuard};
use crate::tensor::Tensor;
use bytemuck::NoUninit;
use ndarray::{
    Array, ArrayBase, ArrayD, ArrayRef, ArrayView, ArrayViewD, ArrayViewMut, ArrayViewMutD, Data, Dimension,
    IxDyn, ShapeBuilder as _, StrideShape,
};
use orlop_core::{Device, Element, Error as LayoutError, Layout, MemoryKind, Quantity, Shape, Strides};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

mod sealed {
    pub trait Sealed {}

    impl<T: crate::Plain> Sealed for T {}
    impl Sealed for bool {}
}

/// An element type of arrays that can become tensors: every [`Plain`] type, and `bool`.
pub trait ArrayElement: sealed::Sealed + NoUninit + Send + Sync {
    /// The [`Plain`] type that represents it in a tensor's memory.
    type Plain: Plain;

    /// Converts to that type.
    fn plain(self) -> Self::Plain;
}

impl<T: Plain> ArrayElement for T {
    type Plain = T;

    #[inline]
    fn plain(self) -> T {
        self
    }
}

impl ArrayElement for bool {
    type Plain = Bool8;

    #[inline]
    fn plain(self) -> Bool8 {
        self.into()
    }
}

impl<T: ArrayElement, D: Dimension> TryFrom<&ArrayRef<T, D>> for Tensor {
    type Error = crate::Error;

    /// Copies the array in row-major order. Any strides are accepted, negative ones too.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    fn try_from(array: &ArrayRef<T, D>) -> Result<Self> {
        let options = TensorOptions::new().dtype(T::Plain::DTYPE).device(Device::CPU);
        let tensor = Self::empty(array.shape(), options)?;
        tensor.as_mut_ndarray::<T::Plain>()?.zip_mut_with(array, |to, from| *to = from.plain());
        Ok(tensor)
    }
}

impl<T: ArrayElement, S: Data<Elem = T>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor {
    type Error = crate::Error;

    /// Copies the array in row-major order. Any strides are accepted, negative ones too.
    ///
    /// ```
    /// use ndarray::{array, s};
    /// use orlop_tensor::Tensor;
    ///
    /// let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let tensor = Tensor::try_from(&array.slice(s![.., ..;-2]))?;
    /// assert_eq!(tensor.to_vec::<f32>()?, [3.0, 1.0, 6.0, 4.0]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`].
    fn try_from(array: &ArrayBase<S, D>) -> Result<Self> {
        Self::try_from(&**array)
    }
}

impl Tensor {
    /// Converts an array without a copy, with its strides. The array's buffer stays allocated until the last
    /// tensor over it is dropped, including parts that are not elements, as in an array that was sliced in
    /// place.
    ///
    /// An array with negative strides is copied.
    ///
    /// ```
    /// use ndarray::{Array, ShapeBuilder};
    /// use orlop_tensor::Tensor;
    ///
    /// let array = Array::from_shape_vec((2, 3).f(), vec![1u8, 2, 3, 4, 5, 6]).unwrap();
    /// let address = array.as_ptr();
    /// let tensor = Tensor::from_ndarray(array)?;
    /// assert_eq!((tensor.sizes(), tensor.strides().as_slice()), (&[2, 3][..], &[1, 2][..]));
    /// assert_eq!(tensor.as_ndarray::<u8>()?.as_ptr(), address);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::empty`], if it must be copied.
    pub fn from_ndarray<T: ArrayElement, D: Dimension>(array: Array<T, D>) -> Result<Self> {
        let shape = Shape::new(array.shape())?;
        let strides = match Strides::for_shape(&shape, array.strides()) {
            Err(LayoutError::NegativeStride { .. }) => return Self::try_from(&array),
            strides => strides?,
        };
        let (mut elements, first) = array.into_raw_vec_and_offset();
        let layout = match first {
            Some(first) if shape.numel() > 0 => Layout::new(shape, strides, first)?,
            // ndarray's strides are all zero in this case.
            _ => Layout::contiguous(shape),
        };
        let bytes = size_of_val(elements.as_slice());
        let ptr = NonNull::from(elements.as_mut_slice()).cast::<u8>();
        // SAFETY: the vector's elements do not move when it moves, have no uninitialised bytes, and are read
        // only through the storage, so the byte of a `bool` may be anything.
        let storage = unsafe { Storage::foreign(ptr, bytes, MemoryKind::Default, elements) };
        Self::from_storage(storage, layout, T::Plain::DTYPE)
    }

    /// Copies the elements to a row-major array, from any device and strides.
    ///
    /// ```
    /// use ndarray::array;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::from_nested(&[[true, false], [true, true]])?;
    /// assert_eq!(tensor.t()?.to_ndarray::<bool>()?, array![[true, true], [false, true]].into_dyn());
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::to_vec`]; [`Overflow`](LayoutError::Overflow) for sizes that `ndarray` does not
    /// accept, which only tensors without elements can have.
    pub fn to_ndarray<E: Element>(&self) -> Result<ArrayD<E>> {
        let elements = self.to_vec::<E>()?;
        Ok(ArrayD::from_shape_vec(IxDyn(self.sizes()), elements).map_err(too_large)?)
    }

    /// Borrows the elements as an array for reading, as long as the guard exists. It never copies.
    ///
    /// ```
    /// use ndarray::Axis;
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::F64)?.view([2, 3])?.t()?;
    /// let array = tensor.as_ndarray::<f64>()?;
    /// assert_eq!(array.sum_axis(Axis(1)), ndarray::arr1(&[3.0, 5.0, 7.0]).into_dyn());
    /// assert_eq!(array[[2, 1]], 5.0);
    /// assert!(tensor.zero_().is_err(), "a reader exists");
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::as_slice`] but for [`NotContiguous`](crate::Error::NotContiguous); those of
    /// [`Tensor::to_ndarray`].
    pub fn as_ndarray<T: Plain>(&self) -> Result<NdArrayView<'_, T>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        let (guard, first) = imp.read_first::<T>()?;
        let view = if imp.layout.is_empty() {
            ArrayView::from_shape(IxDyn(&imp.layout.shape()[..]), &[]).map_err(too_large)?
        } else {
            // SAFETY: `read_first` has checked that all elements are inside the storage and aligned, and any
            // bytes are valid elements (`T` is `Plain`); the offsets fit, because a layout's span does;
            // nothing writes them while the guard exists, and the view does not leave it.
            unsafe { ArrayView::from_shape_ptr(shape_of(&imp.layout), first.as_ptr()) }
        };
        Ok(NdArrayView { view, _guard: guard })
    }

    /// Borrows the elements as an array for reading and writing, as long as the guard exists. A deferred copy
    /// is made first.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::zeros([2, 3], DType::F32)?;
    /// tensor.slice(1, Some(1), None, 1)?.as_mut_ndarray::<f32>()?.fill(2.0);
    /// assert_eq!(tensor.to_vec::<f32>()?, [0.0, 2.0, 2.0, 0.0, 2.0, 2.0]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::as_ndarray`], and [`Error::Borrowed`](crate::Error::Borrowed) during a read;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::InternalOverlap`](crate::Error::InternalOverlap)
    /// if elements share memory.
    pub fn as_mut_ndarray<T: Plain>(&self) -> Result<NdArrayViewMut<'_, T>> {
        let imp = self.imp()?;
        imp.check_dtype(T::DTYPE)?;
        imp.check_apart()?;
        let (guard, first) = imp.write_first::<T>()?;
        let view = if imp.layout.is_empty() {
            ArrayViewMut::from_shape(IxDyn(&imp.layout.shape()[..]), &mut []).map_err(too_large)?
        } else {
            // SAFETY: as in `as_ndarray`; nothing else reads or writes while the guard exists, and no two
            // elements share memory (`check_apart`).
            unsafe { ArrayViewMut::from_shape_ptr(shape_of(&imp.layout), first.as_ptr()) }
        };
        Ok(NdArrayViewMut { view, _guard: guard })
    }
}

/// Returns the sizes and strides of a layout with elements.
fn shape_of(layout: &Layout) -> StrideShape<IxDyn> {
    // The stride of a dimension of size 1 may be anything here, but ndarray multiplies by it.
    let leads = layout.shape().iter().zip(layout.strides().iter());
    let strides: Vec<usize> = leads.map(|(&size, &stride)| if size > 1 { stride } else { 1 }).collect();
    IxDyn(layout.shape()).strides(IxDyn(&strides))
}

/// Converts the only error that `ndarray` can report for valid sizes.
fn too_large(_: ndarray::ShapeError) -> LayoutError {
    LayoutError::Overflow { quantity: Quantity::ElementCount }
}

/// A tensor's elements as an array, with a read guard. See [`Tensor::as_ndarray`].
#[derive(Debug)]
pub struct NdArrayView<'a, T> {
    /// Does not outlive the guard: it is only handed out by reference.
    view: ArrayViewD<'a, T>,
    _guard: ReadGuard<'a>,
}

impl<T> Deref for NdArrayView<'_, T> {
    type Target = ArrayRef<T, IxDyn>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

/// A tensor's elements as an array, with a write guard. See [`Tensor::as_mut_ndarray`].
#[derive(Debug)]
pub struct NdArrayViewMut<'a, T> {
    /// Does not outlive the guard: it is only handed out by reference.
    view: ArrayViewMutD<'a, T>,
    _guard: WriteGuard<'a>,
}

impl<T> Deref for NdArrayViewMut<'_, T> {
    type Target = ArrayRef<T, IxDyn>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T> DerefMut for NdArrayViewMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.view
    }
}
