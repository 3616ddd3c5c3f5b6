//! Imports: accepted and rejected, with the deleter called once in both cases.

use super::{Producer, count, import, import_legacy, look};
use orlop_core::{DType, Device, Error as LayoutError, MemoryKind};
use orlop_tensor::interchange::dlpack::{
    self, DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion,
    DLTensor, DlpackError,
};
use orlop_tensor::{Error, Result, Tensor};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Imports a changed 2 × 3 matrix; if that fails, the deleter has run once.
fn import_changed(change: impl FnOnce(&mut DLManagedTensorVersioned)) -> Result<Tensor> {
    let (producer, calls) = Producer::new(&[0., 1., 2., 3., 4., 5.], &[2, 3], Some(&[3, 1]));
    let imported = import(producer.versioned(change));
    assert_eq!(count(&calls), usize::from(imported.is_err()));
    imported
}

fn refusal(change: impl FnOnce(&mut DLManagedTensorVersioned)) -> Error {
    import_changed(change).err().unwrap()
}

fn dlpack_refusal(change: impl FnOnce(&mut DLManagedTensorVersioned)) -> DlpackError {
    match refusal(change) {
        Error::Dlpack(error) => error,
        other => panic!("{other}"),
    }
}

fn layout_refusal(change: impl FnOnce(&mut DLManagedTensorVersioned)) -> LayoutError {
    match refusal(change) {
        Error::Layout(error) => error,
        other => panic!("{other}"),
    }
}

fn set_shape(managed: &mut DLManagedTensorVersioned, dim: usize, size: i64) {
    let place = managed.dl_tensor.shape.wrapping_add(dim);
    // SAFETY: one of the producer's two sizes.
    unsafe { place.write(size) };
}

fn set_stride(managed: &mut DLManagedTensorVersioned, dim: usize, stride: i64) {
    let place = managed.dl_tensor.strides.wrapping_add(dim);
    // SAFETY: one of the producer's two strides.
    unsafe { place.write(stride) };
}

#[test]
fn the_producer_lives_until_the_last_user_is_gone() {
    let (producer, calls) = Producer::new(&[0., 1., 2., 3., 4., 5.], &[2, 3], None);
    let address = producer.data.as_ptr();
    let tensor = import(producer.versioned(|_| ())).unwrap();
    assert_eq!((tensor.sizes(), tensor.strides().as_slice()), (&[2, 3][..], &[3, 1][..]));
    assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), address, "no copy");
    let row = tensor.select(0, 1).unwrap();
    let storage = row.storage().unwrap().clone();
    drop(tensor);
    assert_eq!((row.to_vec::<f32>().unwrap(), count(&calls)), (vec![3., 4., 5.], 0));
    drop(row);
    assert_eq!((storage.nbytes(), count(&calls)), (24, 0));
    drop(storage);
    assert_eq!(count(&calls), 1);
}

#[test]
fn strides_of_all_kinds_come_in() {
    let data = [0., 1., 2., 3., 4., 5.];
    for (shape, strides, elements) in [
        (&[3i64, 2][..], &[1i64, 3][..], vec![0., 3., 1., 4., 2., 5.]),
        (&[2, 2], &[4, 1], vec![0., 1., 4., 5.]),
        (&[2, 3], &[0, 2], vec![0., 2., 4., 0., 2., 4.]),
        (&[1, 2], &[-7, 5], vec![0., 5.]),
        (&[], &[], vec![0.]),
        (&[1, 1, 1, 1, 1, 1, 6], &[6, 6, 6, 6, 6, 6, 1], data.to_vec()),
    ] {
        let (producer, calls) = Producer::new(&data, shape, Some(strides));
        let tensor = import(producer.versioned(|_| ())).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), elements);
        assert_eq!(tensor.storage().unwrap().nbytes(), tensor.layout().byte_range(4).unwrap().end);
        drop(tensor);
        assert_eq!(count(&calls), 1);
    }
}

#[test]
fn a_byte_offset_is_added() {
    let tensor = import_changed(|managed| {
        managed.dl_tensor.byte_offset = 8;
        set_shape(managed, 0, 1);
    });
    assert_eq!(tensor.unwrap().to_vec::<f32>().unwrap(), [2., 3., 4.]);
}

#[test]
fn nothing_may_be_at_null() {
    for null in [false, true] {
        let (producer, calls) = Producer::new(&[], &[0, 3], Some(&[3, 1]));
        let raw = producer.versioned(|managed| {
            if null {
                managed.dl_tensor.data = ptr::null_mut();
            }
            managed.dl_tensor.byte_offset = u64::MAX;
        });
        let tensor = import(raw).unwrap();
        assert_eq!((tensor.sizes(), tensor.storage().unwrap().nbytes()), (&[0, 3][..], 0));
        assert_eq!((tensor.as_slice::<f32>().unwrap().len(), count(&calls)), (0, 0));
        drop(tensor);
        assert_eq!(count(&calls), 1);
    }
    let number = import_changed(|managed| {
        managed.dl_tensor.ndim = 0;
        managed.dl_tensor.shape = ptr::null_mut();
        managed.dl_tensor.strides = ptr::null_mut();
    });
    assert_eq!(number.unwrap().item::<f32>().unwrap(), 0.0);
}

#[test]
fn a_deleter_may_be_missing() {
    let mut data = [1.0f32, 2.0];
    let mut shape = [2i64];
    let mut managed = DLManagedTensorVersioned {
        version: DLPackVersion::CURRENT,
        manager_ctx: ptr::null_mut(),
        deleter: None,
        flags: 0,
        dl_tensor: DLTensor {
            data: data.as_mut_ptr().cast(),
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: 1,
            dtype: DType::F32.into(),
            shape: shape.as_mut_ptr(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        },
    };
    let tensor = import(NonNull::from(&mut managed)).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn other_versions() {
    assert_eq!(
        dlpack_refusal(|managed| managed.version = DLPackVersion { major: 2, minor: 3 }),
        DlpackError::Version { major: 2, minor: 3 }
    );
    assert_eq!(
        dlpack_refusal(|managed| managed.version.major = 0),
        DlpackError::Version { major: 0, minor: 0 }
    );
    assert!(import_changed(|managed| managed.version.minor = 99).is_ok());
}

/// In a structure of an unknown version, nothing after the flags is read.
#[test]
fn the_deleter_of_another_version_runs_without_a_look_at_the_rest() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);

    #[repr(C)]
    struct UnknownVersion {
        version: DLPackVersion,
        manager_ctx: *mut c_void,
        deleter: Option<dlpack::DLDeleter<DLManagedTensorVersioned>>,
        flags: u64,
    }

    unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
        // SAFETY: the box made below, taken back once.
        drop(unsafe { Box::from_raw(managed.cast::<UnknownVersion>()) });
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let version = DLPackVersion { major: 3, minor: 1 };
    let head = UnknownVersion { version, manager_ctx: ptr::null_mut(), deleter: Some(delete), flags: 1 };
    let raw = NonNull::new(Box::into_raw(Box::new(head))).unwrap().cast();
    assert!(matches!(import(raw), Err(Error::Dlpack(DlpackError::Version { major: 3, minor: 1 }))));
    assert_eq!(count(&CALLS), 1);
}

#[test]
fn what_cannot_be_taken() {
    let dtype = DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 4 };
    assert_eq!(dlpack_refusal(|managed| managed.dl_tensor.dtype = dtype), DlpackError::Lanes { lanes: 4 });
    let dtype = DLDataType { code: DLDataTypeCode(17), bits: 4, lanes: 1 };
    assert_eq!(dlpack_refusal(|managed| managed.dl_tensor.dtype = dtype), DlpackError::DType { dtype });
    let device = DLDevice { device_type: DLDeviceType(10), device_id: 0 };
    assert_eq!(
        dlpack_refusal(|managed| managed.dl_tensor.device = device),
        DlpackError::UnknownDevice { device }
    );
    assert_eq!(dlpack_refusal(|managed| managed.dl_tensor.ndim = -1), DlpackError::Ndim { ndim: -1 });
    assert_eq!(
        dlpack_refusal(|managed| managed.dl_tensor.shape = ptr::null_mut()),
        DlpackError::NullShape { ndim: 2 }
    );
    assert_eq!(
        dlpack_refusal(|managed| managed.dl_tensor.data = ptr::null_mut()),
        DlpackError::NullData { numel: 6 }
    );
    for byte_offset in [u64::MAX, u64::MAX - 23, u64::MAX - 4096] {
        let error = dlpack_refusal(|managed| managed.dl_tensor.byte_offset = byte_offset);
        assert!(matches!(error, DlpackError::Address { bytes: 24, .. }), "{error}");
    }
}

#[test]
fn layouts_that_are_none() {
    assert_eq!(
        layout_refusal(|managed| set_shape(managed, 1, -3)),
        LayoutError::NegativeSize { dim: 1, size: -3 }
    );
    assert_eq!(
        layout_refusal(|managed| set_stride(managed, 0, -3)),
        LayoutError::NegativeStride { dim: 0, stride: -3 }
    );
    for overflow in [
        layout_refusal(|managed| set_shape(managed, 0, i64::MAX)),
        layout_refusal(|managed| set_stride(managed, 0, i64::MAX)),
        layout_refusal(|managed| set_stride(managed, 0, i64::MAX / 4)),
    ] {
        assert!(matches!(overflow, LayoutError::Overflow { .. }), "{overflow}");
    }
    let error = refusal(|managed| {
        managed.dl_tensor.byte_offset = 2;
        set_shape(managed, 0, 1);
    });
    assert!(matches!(error, Error::Misaligned { align: 4, .. }), "{error}");
}

#[test]
fn read_only_is_kept() {
    let tensor = import_changed(|managed| managed.flags = dlpack::READ_ONLY | 1 << 40).unwrap();
    assert!(tensor.storage().unwrap().is_read_only());
    let error = tensor.zero_().unwrap_err();
    assert!(
        matches!(&error, Error::ReadOnly { reason: Some(reason) } if reason.contains("DLPack")),
        "{error}"
    );
    assert!(matches!(dlpack::export_mut(&tensor), Err(Error::ReadOnly { .. })));
    assert!(matches!(dlpack::export_legacy(&tensor), Err(Error::ReadOnly { .. })));
    // It can be exported again for reading, and as a copy.
    assert!(dlpack::export(&tensor).is_ok());
    let copy = tensor.lazy_clone().unwrap();
    copy.zero_().unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [0., 1., 2., 3., 4., 5.]);
    let writable = import_changed(|managed| managed.flags = dlpack::IS_COPIED).unwrap();
    writable.zero_().unwrap();
    // Its block gives no write access either.
    drop(copy);
    let block = tensor.storage().unwrap().block().unwrap();
    drop(tensor);
    assert!(block.try_into_block().is_err());
}

#[test]
fn devices_and_kinds() {
    let pinned = DLDevice { device_type: DLDeviceType::CUDA_HOST, device_id: 0 };
    let tensor = import_changed(|managed| managed.dl_tensor.device = pinned).unwrap();
    assert_eq!((tensor.device(), tensor.memory_kind()), (Device::CPU, MemoryKind::HostPinned));
    assert_eq!(tensor.to_vec::<f32>().unwrap().len(), 6);
    let (producer, calls) = Producer::new(&[0.0; 6], &[6], None);
    let gpu = DLDevice { device_type: DLDeviceType::CUDA, device_id: 3 };
    let raw = producer.versioned(|managed| managed.dl_tensor.device = gpu);
    let tensor = import(raw).unwrap();
    assert_eq!(tensor.device(), Device::cuda(3));
    assert!(matches!(tensor.as_slice::<f32>(), Err(Error::Alloc(_))), "not CPU memory");
    let out = dlpack::export(&tensor).unwrap();
    assert_eq!((look(&out).1.device, look(&out).1.ndim), (gpu, 1));
    drop(tensor);
    assert_eq!(count(&calls), 0);
    drop(out);
    assert_eq!(count(&calls), 1);
}

#[test]
fn legacy_in() {
    let (producer, calls) = Producer::new(&[1., 2.], &[2], None);
    let tensor = import_legacy(producer.legacy()).unwrap();
    tensor.fill_(3.0).unwrap();
    assert_eq!((tensor.to_vec::<f32>().unwrap(), count(&calls)), (vec![3., 3.], 0));
    drop(tensor);
    assert_eq!(count(&calls), 1);
    let (producer, calls) = Producer::new(&[1., 2.], &[-2], None);
    assert!(import_legacy(producer.legacy()).is_err());
    assert_eq!(count(&calls), 1);
}

#[test]
fn any_byte_is_a_bool() {
    let (mut producer, _) = Producer::new(&[0.0], &[4], None);
    producer.data[0] = f32::from_ne_bytes([0, 1, 2, 255]);
    let raw = producer.versioned(|managed| managed.dl_tensor.dtype = DType::Bool.into());
    let tensor = import(raw).unwrap();
    assert_eq!(tensor.to_vec::<bool>().unwrap(), [false, true, true, true]);
}
