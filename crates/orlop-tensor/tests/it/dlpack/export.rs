//! Exports: shared, kept alive, and copied first where a consumer may write.

use super::{dims, look, read, write};
use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
use orlop_core::{DType, Device, Error as LayoutError, Layout, Shape, Strides};
use orlop_tensor::interchange::dlpack::{self, DlpackError};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
use std::ptr::NonNull;
use std::sync::Arc;

/// Returns a tensor and its owner, whose count says whether the tensor has dropped it.
fn watched() -> (Tensor, Arc<()>) {
    let owner = Arc::new(());
    let mut data = vec![1.0f32, 2.0, 3.0, 4.0];
    let ptr = NonNull::from(data.as_mut_slice()).cast();
    let keeper = (data, Arc::clone(&owner));
    // SAFETY: the vector's elements, which are valid as long as it, and which nothing else uses.
    let tensor = unsafe { Tensor::from_foreign(ptr, [2, 2], DType::F32, keeper) };
    (tensor.unwrap(), owner)
}

#[test]
fn exports_keep_the_memory() {
    let (tensor, owner) = watched();
    let exported = dlpack::export(&tensor.t().unwrap()).unwrap();
    let again = dlpack::export_mut(&tensor).unwrap();
    drop(tensor);
    let (_, seen) = look(&exported);
    assert_eq!(dims(&exported), (vec![2, 2], vec![1, 2]));
    assert_eq!((seen.byte_offset, seen.dtype), (0, DType::F32.into()));
    assert_eq!(read(&seen, 3), 4.0);
    drop(exported);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(again);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn the_duty_to_delete_moves_with_the_pointer() {
    let (tensor, owner) = watched();
    let raw = dlpack::export(&tensor).unwrap().into_raw();
    drop(tensor);
    assert_eq!(Arc::strong_count(&owner), 2);
    // SAFETY: a valid export.
    let deleter = unsafe { raw.as_ref() }.deleter.unwrap();
    // SAFETY: the only call.
    unsafe { deleter(raw.as_ptr()) };
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn a_reader_shares_a_writer_copies_first() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0]).unwrap();
    let clone = tensor.lazy_clone().unwrap();
    let shared = tensor.storage().unwrap().as_ptr().unwrap();
    let reading = dlpack::export(&tensor).unwrap();
    let (flags, read_from) = look(&reading);
    assert_eq!((flags, read_from.data.cast_const().cast()), (dlpack::READ_ONLY, shared));
    assert!(tensor.storage().unwrap().is_copy_on_write(), "still lazy");

    let writing = dlpack::export_mut(&tensor).unwrap();
    let (flags, written) = look(&writing);
    assert_eq!(flags, 0);
    assert_ne!(written.data.cast_const().cast(), shared);
    write(&written, 9.0);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [9.0, 2.0], "the consumer's writes show");
    assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0, 2.0], "but not in the clone");
    assert_eq!(read(&read_from, 0), 1.0, "nor in an earlier export");

    // The consumer's writes cannot be observed, so later clones are copied at once.
    let later = tensor.lazy_clone().unwrap();
    write(&written, 10.0);
    assert_eq!(later.to_vec::<f32>().unwrap(), [9.0, 2.0]);
    assert!(!tensor.storage().unwrap().is_copy_on_write());
}

#[test]
fn legacy_out_is_writable() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0]).unwrap();
    let clone = tensor.lazy_clone().unwrap();
    let exported = dlpack::export_legacy(&tensor).unwrap();
    // SAFETY: it is valid, and not changed.
    write(&unsafe { &*exported.as_ptr() }.dl_tensor, 5.0);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [5.0, 2.0]);
    assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    tensor.storage().unwrap().refuse_writes("ours");
    assert!(matches!(dlpack::export_legacy(&tensor), Err(Error::ReadOnly { .. })));
    assert!(dlpack::export(&tensor).is_ok());
}

#[test]
fn a_copy_is_the_consumers() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0]).unwrap().expand([3i64, 2]).unwrap();
    let exported = dlpack::export_copy(&tensor).unwrap();
    let (flags, copy) = look(&exported);
    assert_eq!((flags, dims(&exported)), (dlpack::IS_COPIED, (vec![3, 2], vec![2, 1])));
    write(&copy, 5.0);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1., 2., 1., 2., 1., 2.]);
}

#[test]
fn what_the_consumer_holds_stays_when_the_storage_moves() {
    let mut tensor = Tensor::from_slice(&[1.0f32, 2.0]).unwrap();
    let exported = [dlpack::export_mut(&tensor).unwrap(), dlpack::export(&tensor).unwrap()];
    tensor.resize_([1000]).unwrap();
    tensor.storage().unwrap().reset().unwrap();
    drop(tensor);
    for exported in exported {
        assert_eq!(read(&look(&exported).1, 1), 2.0);
    }
}

#[test]
fn what_cannot_go_out() {
    assert!(matches!(dlpack::export(&Tensor::undefined()), Err(Error::Undefined)));
    let tensor = Tensor::zeros([2], DType::F32).unwrap();
    let writing = tensor.as_mut_slice::<f32>().unwrap();
    assert!(matches!(dlpack::export(&tensor), Err(Error::Borrowed { .. })));
    drop(writing);
    let reading = tensor.as_slice::<f32>().unwrap();
    assert!(dlpack::export(&tensor).is_ok());
    assert!(matches!(dlpack::export_mut(&tensor), Err(Error::Borrowed { .. })));
    drop(reading);
    let mut reaching = tensor.clone();
    reaching.set_shape([3]).unwrap();
    assert!(matches!(
        dlpack::export(&reaching),
        Err(Error::Layout(LayoutError::OutOfStorage { end_bytes: 12, storage_bytes: 8 }))
    ));
    tensor.storage().unwrap().refuse_access("secret");
    assert!(matches!(dlpack::export(&tensor), Err(Error::AccessRefused { .. })));
    let unbound = Storage::unbound(&TensorOptions::new()).unwrap();
    let unbound = Tensor::from_storage(unbound, Layout::contiguous(Shape::new(&[0]).unwrap()), DType::F32);
    assert!(matches!(dlpack::export(&unbound.unwrap()), Err(Error::Unbound { .. })));
}

#[test]
fn another_processs_memory_goes_out_as_a_copy_only() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0]).unwrap();
    tensor.storage().unwrap().mark_foreign_process();
    let refused = |error| matches!(error, Error::ForeignProcess { operation: "exporting" });
    assert!(refused(dlpack::export(&tensor).unwrap_err()));
    assert!(refused(dlpack::export_mut(&tensor).unwrap_err()));
    assert!(refused(dlpack::export_legacy(&tensor).unwrap_err()));
    assert_eq!(read(&look(&dlpack::export_copy(&tensor).unwrap()).1, 1), 2.0);
}

#[test]
fn devices_without_a_name_do_not_go_out() {
    let device = Device::custom(7, 1);
    let mut record = Record::new(NonNull::dangling(), 8, device, Access::Device);
    record.requested = 8;
    // SAFETY: no such device exists, and nothing else accesses it.
    let block = unsafe { Block::foreign(record, Deleter::from_owner(())) };
    let layout = Layout::contiguous(Shape::new(&[2]).unwrap());
    let tensor = Tensor::from_storage(Storage::from_block(block), layout, DType::F32).unwrap();
    for error in [dlpack::export(&tensor).unwrap_err(), dlpack::export_mut(&tensor).unwrap_err()] {
        assert!(
            matches!(error, Error::Dlpack(DlpackError::UnnamedDevice { device: named }) if named == device)
        );
    }
}

#[test]
fn strides_that_lead_nowhere_go_out_as_the_usual_ones() {
    let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::F32).unwrap();
    let layout = Layout::new(Shape::new(&[1, 6, 1]).unwrap(), Strides::new(&[77, 1, 0]).unwrap(), 0).unwrap();
    let tensor = Tensor::from_storage(tensor.storage().unwrap().clone(), layout, DType::F32).unwrap();
    let exported = dlpack::export(&tensor).unwrap();
    assert_eq!(dims(&exported), (vec![1, 6, 1], vec![6, 1, 1]));
    let nothing = Tensor::zeros([3, 0], DType::F32).unwrap();
    let exported = dlpack::export(&nothing).unwrap();
    assert!(look(&exported).1.data.is_null());
}
