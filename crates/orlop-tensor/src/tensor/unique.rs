//! [`Tensor::make_unique`].

use super::Tensor;
use crate::error::Result;

impl Tensor {
    /// Gives the tensor memory of its own: its writes are seen through no other tensor, and copy nothing any
    /// more. Nothing is copied if there are no clones of the handle, no views and no lazy clones of the
    /// memory. Otherwise the others keep the memory, and this handle gets a copy: of all bytes of a lazy
    /// clone, or of the elements of a tensor with clones or views. The copy is memory of the same context,
    /// whichever is current.
    ///
    /// Foreign memory is the tensor's own unless it is another process's or
    /// [immutable](crate::Storage::mark_immutable), such as a mapped file: then it is copied.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let mut tensor = Tensor::zeros([4], DType::F32)?;
    /// let address = tensor.storage()?.as_ptr()?;
    /// tensor.make_unique()?;
    /// assert_eq!(tensor.storage()?.as_ptr()?, address);
    ///
    /// let before = tensor.clone();
    /// tensor.make_unique()?;
    /// tensor.fill_(1.0)?;
    /// assert_eq!((before.to_vec::<f32>()?, tensor.to_vec::<f32>()?), (vec![0.0; 4], vec![1.0; 4]));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`](crate::Error::Undefined), [`Error::Borrowed`](crate::Error::Borrowed); out of
    /// memory. The tensor is then unchanged.
    pub fn make_unique(&mut self) -> Result<()> {
        let storage = self.imp()?.storage();
        if self.has_one_handle() && storage.make_unique()? {
            return Ok(());
        }
        let copy = storage.cell().in_context(|| self.duplicate())?;
        *self = copy;
        Ok(())
    }
}
