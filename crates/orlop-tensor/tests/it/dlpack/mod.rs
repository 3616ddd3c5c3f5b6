//! DLPack: ownership and errors. This module is the other framework.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod export;
mod hostile;
mod import;
mod round_trip;

use orlop_core::DType;
use orlop_tensor::interchange::dlpack::{
    self, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    DlpackTensor,
};
use orlop_tensor::{Result, Tensor};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Another framework's tensor: a vector of floats, and a count of its deleter's calls.
struct Producer {
    data: Vec<f32>,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    calls: Arc<AtomicUsize>,
}

impl Producer {
    fn new(data: &[f32], shape: &[i64], strides: Option<&[i64]>) -> (Self, Arc<AtomicUsize>) {
        let calls = Arc::default();
        let (data, shape, strides) = (data.to_vec(), shape.to_vec(), strides.map(<[i64]>::to_vec));
        (Self { data, shape, strides, calls: Arc::clone(&calls) }, calls)
    }

    fn tensor(&mut self) -> DLTensor {
        DLTensor {
            data: self.data.as_mut_ptr().cast(),
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: i32::try_from(self.shape.len()).unwrap(),
            dtype: DType::F32.into(),
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut().map_or(ptr::null_mut(), Vec::as_mut_ptr),
            byte_offset: 0,
        }
    }

    fn versioned(
        mut self,
        change: impl FnOnce(&mut DLManagedTensorVersioned),
    ) -> NonNull<DLManagedTensorVersioned> {
        unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
            // SAFETY: the box made below, taken back once.
            let managed = unsafe { Box::from_raw(managed) };
            // SAFETY: as above.
            unsafe { Producer::end(managed.manager_ctx) };
        }
        let dl_tensor = self.tensor();
        let mut managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 0 },
            manager_ctx: Box::into_raw(Box::new(self)).cast(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor,
        };
        change(&mut managed);
        NonNull::from(Box::leak(Box::new(managed)))
    }

    fn legacy(mut self) -> NonNull<DLManagedTensor> {
        unsafe extern "C" fn delete(managed: *mut DLManagedTensor) {
            // SAFETY: the box made below, taken back once.
            let managed = unsafe { Box::from_raw(managed) };
            // SAFETY: as above.
            unsafe { Producer::end(managed.manager_ctx) };
        }
        let dl_tensor = self.tensor();
        let manager_ctx = Box::into_raw(Box::new(self)).cast();
        NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) })))
    }

    /// # Safety
    ///
    /// `context` is a box of a producer, taken back once.
    unsafe fn end(context: *mut c_void) {
        // SAFETY: guaranteed by the caller.
        let producer = unsafe { Box::from_raw(context.cast::<Self>()) };
        producer.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Imports what a producer or an export made.
fn import(raw: NonNull<DLManagedTensorVersioned>) -> Result<Tensor> {
    // SAFETY: from `versioned` or an export, whose ownership the caller gave up; tests use one side at a
    // time, and their changes stay within the producer's elements or are rejected.
    unsafe { dlpack::import(raw) }
}

/// Imports the structure from before 1.0.
fn import_legacy(raw: NonNull<DLManagedTensor>) -> Result<Tensor> {
    // SAFETY: as in `import`.
    unsafe { dlpack::import(raw) }
}

/// Returns the flags and the tensor of a valid export.
fn look(exported: &DlpackTensor) -> (u64, DLTensor) {
    // SAFETY: it is valid, and not changed.
    let managed = unsafe { &*exported.as_ptr() };
    (managed.flags, managed.dl_tensor)
}

/// Returns the sizes and strides, as C sees them.
fn dims(exported: &DlpackTensor) -> (Vec<i64>, Vec<i64>) {
    let tensor = look(exported).1;
    let ndim = usize::try_from(tensor.ndim).unwrap();
    // SAFETY: as many sizes as there are dimensions.
    let sizes = unsafe { slice::from_raw_parts(tensor.shape, ndim) };
    // SAFETY: as many strides as there are dimensions.
    let strides = unsafe { slice::from_raw_parts(tensor.strides, ndim) };
    (sizes.to_vec(), strides.to_vec())
}

/// Reads an element of a tensor of floats, as its consumer.
fn read(tensor: &DLTensor, index: usize) -> f32 {
    let place = tensor.data.cast::<f32>().wrapping_add(index);
    // SAFETY: of a valid export; the tests read existing elements, while nothing writes.
    unsafe { place.read() }
}

/// Writes the first element of a tensor of floats, as its consumer.
fn write(tensor: &DLTensor, value: f32) {
    // SAFETY: as in `read`; the tests do this only for writable exports.
    unsafe { tensor.data.cast::<f32>().write(value) };
}

/// Returns the number of the deleter's calls.
fn count(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::Relaxed)
}
