//! Tensors that change what they are: shape and dtype alone, or with the memory (M1, M2).
//!
//! All of these change the one handle. Clones made before keep their sizes; they share the storage, and see it grow.

use super::{IntoShape, Tensor};
use crate::error::Result;
use orlop_alloc::profile::of_shape;
use orlop_core::{DType, Layout, Strides};

impl Tensor {
    /// Another shape, row-major, with the storage grown if it is too small. Elements stay where they are in memory.
    /// Nothing is allocated while the bytes fit into [`Storage::capacity`](crate::Storage::capacity).
    ///
    /// # Errors
    ///
    /// Those of [`Storage::resize`](crate::Storage::resize); then nothing has changed.
    pub fn resize_(&mut self, shape: impl IntoShape) -> Result<()> {
        let layout = Layout::contiguous(shape.into_shape()?);
        self.resize_to(layout)
    }

    /// Another shape and other strides, with the storage grown if it is too small.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::resize_`]; strides that are none.
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
            of_shape(layout.shape(), imp.dtype, || imp.storage().resize(range.end))?;
        }
        *self.metadata_mut()?.0 = layout;
        Ok(())
    }

    /// Another shape, row-major, and nothing else (M2): whether the elements lie inside the storage is asked when they are
    /// used.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`](crate::Error::Layout) for sizes that are none.
    pub fn set_shape(&mut self, shape: impl IntoShape) -> Result<()> {
        let shape = shape.into_shape()?;
        let strides = Strides::contiguous(&shape);
        let (layout, _) = self.metadata_mut()?;
        *layout = Layout::new(shape, strides, layout.offset())?;
        Ok(())
    }

    /// Another dtype, and nothing else: sizes and strides count elements of it. Whether they lie inside the storage is
    /// asked when they are used.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined).
    pub fn set_dtype(&mut self, dtype: DType) -> Result<()> {
        *self.metadata_mut()?.1 = dtype;
        Ok(())
    }

    /// Another layout, and nothing else. Whether the elements lie inside the storage is asked when they are used.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined).
    pub fn set_layout(&mut self, layout: Layout) -> Result<()> {
        *self.metadata_mut()?.0 = layout;
        Ok(())
    }
}
