//! `orlop.Tensor`: memory of orlop for NumPy, PyTorch and others, and theirs for orlop, without a copy.
//!
//! Exports are shares of the tensor's block: they keep the memory, not the Python object, and outlive the
//! module. As with every library of Python that shares memory, a program that writes an array while another
//! of its threads resizes or copies the tensor over it may read a mixture of both.

mod buffer;
mod capsule;
mod element_format;
mod error;

use self::error::TensorError;
use orlop_alloc::Tag;
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::TensorOptions;
use orlop_tensor::interchange::dlpack::{self, DLDevice};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;

/// The device that exports are on: `kDLCPU`, 0.
const HOST: (i32, i32) = (1, 0);

/// A tensor in host memory of orlop, or over the memory of another library.
#[pyclass(module = "orlop")]
#[derive(Debug)]
pub(crate) struct Tensor {
    tensor: orlop_tensor::Tensor,
}

impl From<orlop_tensor::Tensor> for Tensor {
    fn from(tensor: orlop_tensor::Tensor) -> Self {
        Self { tensor }
    }
}

impl Tensor {
    fn is_read_only(&self) -> Result<bool, TensorError> {
        Ok(self.tensor.storage()?.is_read_only())
    }

    /// Returns `true` while a capsule, a view or an importer shares the memory.
    fn is_exported(&self) -> Result<bool, TensorError> {
        let is_empty = self.tensor.storage()?.nbytes() == 0;
        Ok(!is_empty && self.tensor.would_free()? == 0)
    }
}

#[pymethods]
impl Tensor {
    /// The sizes of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.sizes())
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// The name of the memory kind.
    #[getter]
    fn kind(&self) -> &'static str {
        self.tensor.memory_kind().name()
    }

    /// The bytes of the elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.nbytes()
    }

    /// Whether the memory must not be written.
    #[getter]
    fn readonly(&self) -> Result<bool, TensorError> {
        self.is_read_only()
    }

    /// Changes the shape to a row-major one. Elements keep their positions in memory; new ones are arbitrary.
    fn resize(&mut self, shape: ShapeArgument) -> Result<(), TensorError> {
        if self.is_exported()? {
            return Err(TensorError::Exported);
        }
        Ok(self.tensor.resize_(shape.sizes())?)
    }

    /// Returns a capsule with the memory, by the protocol of DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("host memory has no streams: stream must be None"));
        }
        if dl_device.is_some_and(|device| device != HOST) {
            return Err(PyBufferError::new_err(
                "the memory is the host's: dl_device must be (1, 0), or None",
            ));
        }
        let copy = copy == Some(true);
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let tensor = &self.tensor;
        match (versioned, copy) {
            (true, true) => capsule::new(py, dlpack::export_copy(tensor).map_err(TensorError::from)?),
            (true, false) => capsule::new(py, self.shared()?),
            (false, true) => {
                let copy = tensor.duplicate().map_err(TensorError::from)?;
                capsule::new(py, dlpack::export_legacy(&copy).map_err(TensorError::from)?)
            }
            // Read-only memory is refused: older capsules have no flag for it.
            (false, false) => capsule::new(py, dlpack::export_legacy(tensor).map_err(TensorError::from)?),
        }
    }

    /// Returns the device type and the index, by the protocol of DLPack.
    fn __dlpack_device__(&self) -> Result<(i32, i32), TensorError> {
        let device = DLDevice::try_from(self.tensor.device()).map_err(orlop_tensor::Error::from)?;
        Ok((device.device_type.0, device.device_id))
    }

    fn __repr__(&self) -> String {
        let Self { tensor } = self;
        format!("orlop.Tensor(shape={:?}, dtype={}, kind={})", tensor.sizes(), tensor.dtype(), self.kind())
    }

    /// # Safety
    ///
    /// As for `bf_getbuffer` of the C interface: `view` is valid for writes.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { buffer::fill(&slf, view, flags) }
    }

    /// # Safety
    ///
    /// As for `bf_releasebuffer` of the C interface: [`Self::__getbuffer__`] filled `view`, and this is the
    /// only release.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: guaranteed by the caller.
        unsafe { buffer::release(view) };
    }
}

impl Tensor {
    /// Exports the memory; for reads only, if it must not be written.
    fn shared(&self) -> Result<dlpack::DlpackTensor, TensorError> {
        let export = if self.is_read_only()? { dlpack::export } else { dlpack::export_mut };
        Ok(export(&self.tensor)?)
    }
}

/// A shape: a number, or a sequence of numbers.
#[derive(FromPyObject)]
pub(crate) enum ShapeArgument {
    #[pyo3(transparent, annotation = "int")]
    Vector(usize),
    #[pyo3(transparent, annotation = "sequence of int")]
    Sizes(Vec<usize>),
}

impl ShapeArgument {
    fn sizes(&self) -> &[usize] {
        match self {
            Self::Vector(size) => std::slice::from_ref(size),
            Self::Sizes(sizes) => sizes,
        }
    }
}

/// Returns a tensor with arbitrary elements in memory of orlop, under this kind and tag.
#[pyfunction]
#[pyo3(signature = (shape, dtype="float32", *, kind="default", tag=""))]
pub(crate) fn empty(shape: ShapeArgument, dtype: &str, kind: &str, tag: &str) -> Result<Tensor, TensorError> {
    Ok(orlop_tensor::Tensor::empty(shape.sizes(), options(dtype, kind, tag)?)?.into())
}

/// Returns a tensor of zeros in memory of orlop, under this kind and tag.
#[pyfunction]
#[pyo3(signature = (shape, dtype="float32", *, kind="default", tag=""))]
pub(crate) fn zeros(shape: ShapeArgument, dtype: &str, kind: &str, tag: &str) -> Result<Tensor, TensorError> {
    Ok(orlop_tensor::Tensor::zeros(shape.sizes(), options(dtype, kind, tag)?)?.into())
}

fn options(dtype: &str, kind: &str, tag: &str) -> Result<TensorOptions<'static>, TensorError> {
    let dtype: DType = dtype.parse().map_err(orlop_tensor::Error::from)?;
    let kind: MemoryKind = kind.parse().map_err(orlop_tensor::Error::from)?;
    Ok(TensorOptions::new().dtype(dtype).kind(kind).tag(Tag::new(tag)))
}

/// Returns a tensor over the memory of an object with `__dlpack__`. The memory must be the host's.
#[pyfunction]
#[pyo3(signature = (source, /))]
pub(crate) fn from_dlpack(source: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let capsule = capsule::request(source)?;
    Ok(capsule::import(&capsule)?.into())
}

/// Returns a tensor over the memory of an object with the buffer protocol.
#[pyfunction]
#[pyo3(signature = (source, /))]
pub(crate) fn from_buffer(source: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    Ok(buffer::import(source)?.into())
}

/// Returns the bytes in live blocks of host memory: of tensors, and of other libraries' memory under tensors.
#[pyfunction]
pub(crate) fn live_bytes() -> u64 {
    Context::with_current(|context| context.stats(Device::CPU).live())
}
