//! Capsules of DLPack: the objects of Python that carry a managed tensor from its producer to its consumer.
//!
//! The name of a capsule says who owns the managed tensor: the capsule, until a consumer renames it. That is
//! the array API's protocol (<https://dmlc.github.io/dlpack/latest/python_spec.html>).

use super::error::TensorError;
use orlop_tensor::Tensor;
use orlop_tensor::interchange::dlpack::{
    self, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, Managed, ManagedTensor,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};
use std::ffi::CStr;
use std::ptr::NonNull;

/// `kDLCPU` and `kDLCUDAHost`: memory that the host reads and writes.
const HOST_TYPES: [i32; 2] = [1, 3];

/// The names of a version's capsules.
pub(super) trait CapsuleNames: ManagedTensor + 'static {
    /// Of a capsule that owns its managed tensor.
    const OWNER: &'static CStr;
    /// Of a capsule whose managed tensor a consumer owns.
    const USED: &'static CStr;
}

impl CapsuleNames for DLManagedTensorVersioned {
    const OWNER: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
}

impl CapsuleNames for DLManagedTensor {
    const OWNER: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
}

/// Makes a capsule that owns an exported tensor.
pub(super) fn new<M: CapsuleNames>(py: Python<'_>, exported: Managed<M>) -> PyResult<Bound<'_, PyAny>> {
    let raw = exported.into_raw();
    // SAFETY: the interpreter is attached, the pointer is not null, and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(raw.as_ptr().cast(), M::OWNER.as_ptr(), Some(destroy::<M>)) };
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.inspect_err(|_| {
        // SAFETY: given up above, and no capsule has it.
        drop(unsafe { Managed::from_raw(raw) });
    })
}

/// Releases the managed tensor of a capsule that no consumer took.
///
/// # Safety
///
/// `capsule` is a capsule of [`new`], at its end.
unsafe extern "C" fn destroy<M: CapsuleNames>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter is attached when objects end.
    if let Some(raw) = unsafe { owned::<M>(capsule) } {
        // SAFETY: the capsule still owns it, and ends.
        drop(unsafe { Managed::from_raw(raw) });
    }
}

/// Returns the managed tensor that a capsule owns; `None` for a used capsule, and for other objects.
///
/// # Safety
///
/// The interpreter is attached, and `object` is an object.
unsafe fn owned<M: CapsuleNames>(object: *mut ffi::PyObject) -> Option<NonNull<M>> {
    // SAFETY: guaranteed by the caller; any object may be asked.
    if unsafe { ffi::PyCapsule_IsValid(object, M::OWNER.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: a valid capsule of this name.
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(object, M::OWNER.as_ptr()) }.cast())
}

/// Calls `__dlpack__` of an object in host memory, for a capsule of version 1 or of the version before.
pub(super) fn request<'py>(source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = source.py();
    let device = source.call_method0(intern!(py, "__dlpack_device__"))?;
    let (device_type, _): (i32, i32) = device.extract()?;
    if !HOST_TYPES.contains(&device_type) {
        return Err(TensorError::Device { device_type }.into());
    }
    let DLPackVersion { major, minor } = DLPackVersion::CURRENT;
    let options = PyDict::new(py);
    options.set_item(intern!(py, "max_version"), (major, minor))?;
    match source.call_method(intern!(py, "__dlpack__"), (), Some(&options)) {
        // A producer from before version 1 has no such argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            source.call_method0(intern!(py, "__dlpack__"))
        }
        result => result,
    }
}

/// Takes the managed tensor of a capsule, and makes a tensor over it.
pub(super) fn import(capsule: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    match import_version::<DLManagedTensorVersioned>(capsule)? {
        Some(tensor) => Ok(tensor),
        None => import_version::<DLManagedTensor>(capsule)?.ok_or_else(|| TensorError::NoCapsule.into()),
    }
}

fn import_version<M: CapsuleNames>(capsule: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    // SAFETY: the interpreter is attached.
    let Some(raw) = (unsafe { owned::<M>(capsule.as_ptr()) }) else { return Ok(None) };
    // SAFETY: a valid capsule, and a static name. No code of Python runs since it was found to be the owner.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    // SAFETY: by the protocol, a capsule of this name has a managed tensor of this version, complete, with
    // memory that is valid until the deleter is called, on any thread (1 to 3); the capsule is renamed, so
    // that this owns it (2). Elements are read and written by Python programs, and here only in calls that
    // they make (4).
    let tensor = unsafe { dlpack::import(raw) }.map_err(TensorError::from)?;
    // What the producer announced is not what the capsule says.
    if !tensor.device().is_cpu() {
        let device = DLDevice::try_from(tensor.device()).map_err(orlop_tensor::Error::from);
        let device_type = device.map_err(TensorError::from)?.device_type.0;
        return Err(TensorError::Device { device_type }.into());
    }
    Ok(Some(tensor))
}
