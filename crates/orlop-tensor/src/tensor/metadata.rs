//! In-place changes of a tensor's metadata: shape and dtype alone, or together with the memory.
//!
//! All of them change this handle only. Earlier clones keep their sizes; they share the storage, which may
//! grow.

use super::{IntoShape, Tensor};
use crate::error::Result;
use orlop_context::profile::with_shape;
use orlop_core::{DType, Layout, Strides};

impl Tensor {
    /// Changes the shape to a row-major one, and grows the storage if it is too small. Elements keep their
    /// positions in memory. There is no allocation up to [`Storage::capacity`](crate::Storage::capacity).
    ///
    /// # Errors
    ///
    /// Those of [`Storage::resize`](crate::Storage::resize); nothing is then changed.
    pub fn resize_(&mut self, shape: impl IntoShape) -> Result<()> {
        let layout = Layout::contiguous(shape.into_shape()?);
        self.resize_to(layout)
    }

    /// Changes shape and strides, and grows the storage if it is too small.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::resize_`]; invalid strides.
    pub fn resize_strided_(&mut self, shape: impl IntoShape, strides: &[usize]) -> Result<()> {
        let shape = shape.into_shape()?;
        let strides = Strides::for_shape(&shape, strides)?;
        self.resize_to(Layout::new(shape, strides, 0)?)
    }

    fn resize_to(&mut self, layout: Layout) -> Result<()> {
        let imp = self.imp()?;
        let layout = Layout::new(layout.shape().clone(), layout.strides().clone(), imp.layout.offset())?;
        let range = layout.byte_range(imp.dtype.size())?;
        if !layout.is_empty() && range.end > imp.storage().nbytes() {
            with_shape(layout.shape(), imp.dtype, || imp.storage().resize(range.end))?;
        }
        *self.metadata_mut()?.0 = layout;
        Ok(())
    }

    /// Changes the shape to a row-major one, and nothing else. Whether the elements are inside the storage is
    /// checked at their next access.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) for invalid sizes.
    pub fn set_shape(&mut self, shape: impl IntoShape) -> Result<()> {
        let shape = shape.into_shape()?;
        let strides = Strides::contiguous(&shape);
        let (layout, _) = self.metadata_mut()?;
        *layout = Layout::new(shape, strides, layout.offset())?;
        Ok(())
    }

    /// Changes the dtype, and nothing else: sizes and strides count elements of it. Whether the elements are
    /// inside the storage is checked at their next access.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined).
    pub fn set_dtype(&mut self, dtype: DType) -> Result<()> {
        *self.metadata_mut()?.1 = dtype;
        Ok(())
    }

    /// Changes the layout, and nothing else. Whether the elements are inside the storage is checked at their
    /// next access.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined).
    pub fn set_layout(&mut self, layout: Layout) -> Result<()> {
        *self.metadata_mut()?.0 = layout;
        Ok(())
    }
}
