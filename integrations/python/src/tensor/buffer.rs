//! The buffer protocol: views of a tensor's memory, and tensors over the memory of other objects.
//!
//! A view owns a share of the block, as capsules do; the protocol's structure points into it.

use super::Tensor;
use super::element_format::{dtype_of, format_of};
use super::error::TensorError;
use orlop_core::{DType, Layout, MemoryKind, Shape, Strides};
use orlop_tensor::Storage;
use orlop_tensor::interchange::dlpack::DlpackTensor;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{self, NonNull};

/// What the structure of a view points to.
struct BufferView {
    exported: DlpackTensor,
    sizes: Vec<ffi::Py_ssize_t>,
    /// In bytes.
    strides: Vec<ffi::Py_ssize_t>,
    /// `None` for bytes that the consumer did not ask the format of.
    format: Option<&'static CStr>,
    is_read_only: bool,
    item_bytes: ffi::Py_ssize_t,
    bytes: ffi::Py_ssize_t,
}

impl BufferView {
    /// Makes the view that a consumer asks for with these flags.
    fn new(tensor: &Tensor, flags: c_int) -> Result<Self, TensorError> {
        let wants = |flag: c_int| flags & flag == flag;
        let is_read_only = tensor.is_read_only()?;
        if is_read_only && wants(ffi::PyBUF_WRITABLE) {
            return Err(TensorError::ReadOnly);
        }
        let inner = &tensor.tensor;
        let dtype = inner.dtype();
        let format = format_of(dtype).ok_or(TensorError::NoFormat { dtype })?;
        let row_major = inner.is_contiguous();
        let column_major = is_column_major(inner.sizes(), inner.strides());
        let fits = if wants(ffi::PyBUF_C_CONTIGUOUS) || !wants(ffi::PyBUF_STRIDES) {
            row_major
        } else if wants(ffi::PyBUF_F_CONTIGUOUS) {
            column_major
        } else {
            !wants(ffi::PyBUF_ANY_CONTIGUOUS) || row_major || column_major
        };
        if !fits {
            return Err(TensorError::Order);
        }
        let item_bytes = signed(dtype.size())?;
        let in_bytes = |&stride: &usize| signed(stride.saturating_mul(dtype.size()));
        Ok(Self {
            exported: tensor.shared()?,
            sizes: inner.sizes().iter().map(|&size| signed(size)).collect::<Result<_, _>>()?,
            strides: inner.strides().iter().map(in_bytes).collect::<Result<_, _>>()?,
            format: wants(ffi::PyBUF_FORMAT).then_some(format),
            is_read_only,
            item_bytes,
            bytes: signed(inner.nbytes())?,
        })
    }

    /// Returns the address of the first element; any aligned address if there is none.
    fn data(&self) -> *mut std::ffi::c_void {
        // SAFETY: an exported tensor that this owns.
        let data = unsafe { (*self.exported.as_ptr()).dl_tensor.data };
        if data.is_null() { NonNull::<u64>::dangling().as_ptr().cast() } else { data }
    }
}

/// Fills the structure of a view, which then owns a share of the memory and a reference to the tensor.
///
/// # Safety
///
/// `view` is null or valid for writes.
pub(super) unsafe fn fill(
    tensor: &Bound<'_, Tensor>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view to fill"));
    }
    // SAFETY: guaranteed by the caller. Without a view, the protocol asks for null.
    unsafe { (*view).obj = ptr::null_mut() };
    let shared = Box::new(BufferView::new(&*tensor.try_borrow()?, flags)?);
    let ndim = c_int::try_from(shared.sizes.len()).unwrap_or(c_int::MAX);
    let wants = |flag: c_int| flags & flag == flag;
    let address = |numbers: &[ffi::Py_ssize_t], flag: c_int| {
        if wants(flag) { numbers.as_ptr().cast_mut() } else { ptr::null_mut() }
    };
    let data = shared.data();
    // SAFETY: guaranteed by the caller. What it points to is in the box, static, or the share's memory.
    unsafe {
        (*view).buf = data;
        (*view).len = shared.bytes;
        (*view).itemsize = shared.item_bytes;
        (*view).readonly = c_int::from(shared.is_read_only);
        (*view).ndim = ndim;
        (*view).format = shared.format.map_or(ptr::null_mut(), |format| format.as_ptr().cast_mut());
        (*view).shape = address(&shared.sizes, ffi::PyBUF_ND);
        (*view).strides = address(&shared.strides, ffi::PyBUF_STRIDES);
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = Box::into_raw(shared).cast();
        (*view).obj = tensor.clone().into_ptr();
    }
    Ok(())
}

/// Releases what a view owns, except for its reference to the tensor.
///
/// # Safety
///
/// [`fill`] succeeded for `view`, and this is called once for it.
pub(super) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the box of `fill`, taken back once (guaranteed by the caller).
    drop(unsafe { Box::from_raw((*view).internal.cast::<BufferView>()) });
}

/// Makes a tensor over the memory of an object with the buffer protocol, which it keeps.
pub(super) fn import(source: &Bound<'_, PyAny>) -> PyResult<orlop_tensor::Tensor> {
    // A memoryview fills in the strides, which some exporters leave out.
    let view = PyMemoryView::from(source)?;
    let (buffer, dtype, layout) = match view.getattr("ndim")?.extract()? {
        0_usize => element(&view)?,
        _ => {
            let buffer = PyUntypedBuffer::get(view.as_any())?;
            let (dtype, layout) = describe(&buffer)?;
            (buffer, dtype, layout)
        }
    };
    let bytes =
        layout.byte_range(dtype.size()).map_err(orlop_tensor::Error::from).map_err(TensorError::from)?;
    let is_read_only = buffer.readonly();
    let dangling = NonNull::<u64>::dangling().cast();
    let first = NonNull::new(buffer.buf_ptr().cast()).filter(|_| !layout.is_empty()).unwrap_or(dangling);
    if !dtype.alignment().is_aligned(first.addr().get()) {
        let error =
            orlop_tensor::Error::Misaligned { address: first.addr().get(), align: dtype.alignment().bytes() };
        return Err(TensorError::from(error).into());
    }
    // SAFETY: by the protocol, the elements stay valid until the buffer is released, which its drop does, for
    // writes unless it is read-only: such memory is never written, because the storage refuses it for good
    // before anything else has it. Elements are read and written by Python programs, and here only in calls
    // that they make.
    let storage = unsafe { Storage::foreign(first, bytes.end, MemoryKind::Default, buffer) };
    if is_read_only {
        storage.mark_immutable("the exporter of the buffer made it read-only");
    }
    Ok(orlop_tensor::Tensor::from_storage(storage, layout, dtype).map_err(TensorError::from)?)
}

/// Returns the bytes, the element type and the layout of a buffer without dimensions, which has no shape.
fn element(view: &Bound<'_, PyMemoryView>) -> PyResult<(PyUntypedBuffer, DType, Layout)> {
    let format = view.getattr("format")?.extract::<CString>()?;
    let bytes = view.getattr("itemsize")?.extract()?;
    let dtype = dtype_of(&format, bytes).ok_or_else(|| TensorError::format(&format, bytes))?;
    let buffer = PyUntypedBuffer::get(&view.call_method1("cast", ("B",)).map_err(|_| TensorError::Element)?)?;
    Ok((buffer, dtype, Layout::contiguous(Shape::scalar())))
}

/// Returns the element type and the checked sizes and strides of a buffer.
fn describe(buffer: &PyUntypedBuffer) -> Result<(DType, Layout), TensorError> {
    if buffer.suboffsets().is_some() {
        return Err(TensorError::Suboffsets);
    }
    let bytes = buffer.item_size();
    let dtype =
        dtype_of(buffer.format(), bytes).ok_or_else(|| TensorError::format(buffer.format(), bytes))?;
    let in_elements = |&stride: &isize| match usize::try_from(stride) {
        Ok(stride) if stride % bytes == 0 => Ok(stride / bytes),
        _ => Err(TensorError::Strides { stride, bytes }),
    };
    let strides: Vec<usize> = buffer.strides().iter().map(in_elements).collect::<Result<_, _>>()?;
    let shape = Shape::new(buffer.shape()).map_err(orlop_tensor::Error::from)?;
    let strides = Strides::for_shape(&shape, &strides).map_err(orlop_tensor::Error::from)?;
    Ok((dtype, Layout::new(shape, strides, 0).map_err(orlop_tensor::Error::from)?))
}

/// Returns `true` if the first dimension is the fastest, without gaps.
fn is_column_major(sizes: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    sizes.contains(&0)
        || sizes.iter().zip(strides).all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
}

/// Returns a size as the protocol has it.
fn signed(size: usize) -> Result<ffi::Py_ssize_t, TensorError> {
    let overflow = orlop_core::Error::Overflow { quantity: orlop_core::Quantity::ElementSpan };
    ffi::Py_ssize_t::try_from(size).map_err(|_| TensorError::Tensor(overflow.into()))
}
