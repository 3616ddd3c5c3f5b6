//! Tensors of orlop as inputs and outputs, without a copy.

use crate::elements::{BorrowedInput, dtype};
use crate::{Error, OrtMemory, Result};
use orlop::prelude::*;
use orlop::tensor::Storage;
use orlop::types::{Layout, MemoryFormat, Shape};
use ort::session::Session;
use ort::value::{DynTensorValueType, DynValue, ValueType};
use std::borrow::Cow;

impl OrtMemory {
    /// Runs a session. Returns the outputs with their names, in the order of the model.
    ///
    /// The inputs are borrowed for reading during the call: contiguous ones are not copied. The outputs of a
    /// session with this allocator are not copied either: see [`OrtMemory::tensor`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the report if a request was refused; other errors of ONNX Runtime
    /// ([`Error::Runtime`]); [`Error::UnsupportedDType`] and [`Error::UnsupportedOutput`] for elements that
    /// the other side does not have: booleans, half floats, complex numbers and strings; [`Error::Tensor`]
    /// while an input is borrowed for writing.
    pub fn run(&self, session: &mut Session, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>> {
        let contiguous: Vec<Cow<'_, Tensor>> = inputs
            .iter()
            .map(|(_, tensor)| tensor.as_contiguous(MemoryFormat::Contiguous))
            .collect::<std::result::Result<_, _>>()?;
        let borrowed =
            contiguous.iter().map(|tensor| BorrowedInput::of(tensor)).collect::<Result<Vec<_>>>()?;
        let mut values = Vec::with_capacity(inputs.len());
        for (((name, _), tensor), elements) in inputs.iter().zip(&contiguous).zip(&borrowed) {
            values.push((Cow::Borrowed(*name), elements.value(tensor.sizes())?));
        }
        drop(self.take_refusal());
        let outputs = session.run(values).map_err(|error| self.blocks().explain(error))?;
        outputs.into_iter().map(|(name, value)| Ok((name.to_owned(), self.tensor(name, value)?))).collect()
    }

    /// Converts a value of ONNX Runtime into a tensor. `name` is for the error.
    ///
    /// The tensor owns the block of the value if that is a block of this allocator which nothing else in ONNX
    /// Runtime refers to. Otherwise the elements are copied: an output that is also an input, a weight or
    /// another output, and an output of a session without this allocator.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedOutput`]; [`Error::Tensor`] if there is no memory for a copy. The value is lost.
    pub fn tensor(&self, name: &str, value: DynValue) -> Result<Tensor> {
        let unsupported = |what: String| Error::UnsupportedOutput { name: name.to_owned(), what };
        let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
            return Err(unsupported(value.dtype().to_string()));
        };
        let dtype = dtype(*ty).ok_or_else(|| unsupported(ty.to_string()))?;
        let sizes: Vec<usize> = shape
            .iter()
            .map(|&size| usize::try_from(size))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| unsupported(value.dtype().to_string()))?;
        let value = value.downcast::<DynTensorValueType>()?;
        if !value.memory_info().is_cpu_accessible() {
            return Err(unsupported(value.memory_info().allocation_device().as_str().to_owned()));
        }
        let shape = Shape::new(&sizes).map_err(orlop::tensor::Error::from)?;
        let bytes = shape.checked_bytes(dtype.size()).map_err(orlop::tensor::Error::from)?;
        let source = value.data_ptr().cast::<u8>();

        let mut pinned = self.blocks().pin(source.addr()).filter(|pinned| pinned.len() >= bytes);
        let mut value = Some(value);
        if let Some(pinned) = &mut pinned {
            value = None;
            if let Some(block) = pinned.take() {
                self.blocks().count_output(false);
                let layout = Layout::contiguous(shape);
                return Ok(Tensor::from_storage(Storage::from_block(block), layout, dtype)?);
            }
        }
        let copy = Tensor::empty(shape, dtype)?;
        if bytes > 0 {
            // SAFETY: a tensor's value has its elements there, initialised by the run. The memory is valid
            // because the block is pinned, or the value is alive.
            let elements = unsafe { std::slice::from_raw_parts(source, bytes) };
            copy.storage()?.write()?.copy_from_slice(elements);
        }
        self.blocks().count_output(true);
        drop((pinned, value));
        Ok(copy)
    }
}
