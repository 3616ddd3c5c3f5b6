//! Foreign memory: copied where it cannot be shared, released early, moved out.

use orlop_alloc::Deleter;
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions, Unresizable};
use std::ptr::NonNull;
use std::sync::Arc;

/// Returns a storage and its owner, whose count says whether the storage has dropped it.
fn owned(bytes: usize) -> (Storage, Arc<Vec<u8>>) {
    let owner = Arc::new(vec![5; bytes]);
    let ptr = NonNull::from(owner.as_slice()).cast();
    // SAFETY: the vector lives as long as its owner, and the tests do not write it.
    (unsafe { Storage::foreign(ptr, bytes, MemoryKind::Persistent, Arc::clone(&owner)) }, owner)
}

/// Returns a storage over borrowed bytes.
///
/// # Safety
///
/// The bytes outlive the storage and everything that shares it, and nothing else uses them meanwhile.
unsafe fn borrowed(bytes: &mut [u8]) -> Storage {
    let (ptr, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
    // SAFETY: guaranteed by the caller.
    unsafe { Storage::borrowed(ptr, len, MemoryKind::Default) }
}

#[test]
fn borrowed_memory_is_written_where_it_is_and_never_shared() {
    let mut bytes = vec![0u8; 64];
    // SAFETY: the vector is used again after the storage is dropped; the clone has memory of its own.
    let storage = unsafe { borrowed(&mut bytes) };
    let clone = storage.lazy_clone().unwrap();
    assert_ne!(clone.as_ptr().unwrap(), storage.as_ptr().unwrap());
    assert!(!clone.is_copy_on_write() && !storage.is_copy_on_write() && clone.is_resizable());
    storage.write().unwrap().fill(1);
    drop(storage);
    assert_eq!(bytes, [1; 64]);
    drop(bytes);
    assert_eq!(&*clone.read().unwrap(), &[0; 64]);
}

#[test]
fn a_part_is_all_that_a_real_copy_copies() {
    let context = Context::new();
    context.scope(|| {
        let (file, _owner) = owned(1 << 20);
        let tensor = Tensor::bind(&file, 512, [25, 4], DType::U8).unwrap();
        let clone = tensor.lazy_clone().unwrap();
        let stats = context.stats(Device::CPU).totals.all;
        // The other allocation is the file, as foreign memory.
        assert_eq!((stats.allocations, stats.live_bytes < (1 << 20) + 4096), (2, true));
        assert_eq!(clone.to_vec::<u8>().unwrap(), [5; 100]);
        clone.fill_(6).unwrap();
        assert_eq!((clone.storage().unwrap().nbytes(), tensor.to_vec::<u8>().unwrap()[0]), (100, 5));
        assert!(clone.storage().unwrap().is_resizable());
        let view = tensor.narrow(0, 3, 2).unwrap().lazy_clone().unwrap();
        assert_eq!((view.storage_offset(), view.to_vec::<u8>().unwrap()), (12, vec![5; 8]));
    });
}

#[test]
fn a_part_of_what_has_shrunk_is_copied_as_far_as_it_is_there() {
    let whole = Storage::new(1000, &TensorOptions::new().zeroed()).unwrap();
    let _address = whole.as_mut_ptr().unwrap();
    let (part, gone) = (whole.slice(10..900).unwrap(), whole.slice(500..600).unwrap());
    whole.resize(100).unwrap();
    assert_eq!(part.lazy_clone().unwrap().nbytes(), 90);
    assert_eq!(gone.lazy_clone().unwrap().nbytes(), 0);
    whole.reset().unwrap();
    assert_eq!(gone.lazy_clone().unwrap().nbytes(), 0);
}

#[test]
fn swapped_memory_is_resizable_where_it_is_an_allocators() {
    let own = Storage::new(16, &TensorOptions::new()).unwrap();
    let (foreign, owner) = owned(16);
    own.swap_data(&foreign).unwrap();
    assert!(!own.is_resizable() && foreign.is_resizable());
    assert!(matches!(own.resize(100), Err(Error::NotResizable { why: Unresizable::Foreign })));
    foreign.resize(100).unwrap();
    assert_eq!((foreign.nbytes(), Arc::strong_count(&owner)), (100, 2));
}

#[test]
fn memory_goes_early() {
    let (storage, owner) = owned(64);
    let tensor = Tensor::bind(&storage, 0, [64], DType::U8).unwrap();
    assert!(matches!(tensor.storage().unwrap().clear(), Err(Error::NotResizable { why: Unresizable::Part })));
    let reader = storage.read().unwrap();
    assert!(matches!(storage.clear(), Err(Error::Borrowed { .. })));
    drop(reader);
    storage.clear().unwrap();
    assert_eq!((Arc::strong_count(&owner), storage.nbytes(), storage.capacity().unwrap()), (1, 0, 0));
    assert_eq!((storage.memory_kind(), storage.is_resizable()), (MemoryKind::Persistent, false));
    assert!(tensor.to_vec::<u8>().is_err() && storage.read().unwrap().is_empty());
    storage.clear().unwrap();
    let other = Storage::new(64, &TensorOptions::new()).unwrap();
    let clone = other.lazy_clone().unwrap();
    other.clear().unwrap();
    assert_eq!(clone.nbytes(), 64);
    other.resize(10).unwrap();
    other.write().unwrap().fill(1);
}

#[test]
fn memory_is_given_away() {
    let (storage, owner) = owned(64);
    let address = storage.as_ptr().unwrap();
    let (ptr, deleter): (NonNull<u8>, Deleter) = storage.into_block().unwrap().into_foreign().unwrap();
    assert_eq!((ptr.as_ptr().cast_const(), Arc::strong_count(&owner)), (address, 2));
    drop(deleter);
    assert_eq!(Arc::strong_count(&owner), 1);

    let storage = Storage::new(64, &TensorOptions::new().zeroed()).unwrap();
    let mut block = storage.into_block().unwrap();
    block.bytes_mut().unwrap().fill(1);
    let block = block.into_foreign().unwrap_err();
    assert_eq!(Storage::from_block(block).read().unwrap()[0], 1);
}

#[test]
fn memory_that_is_not_alone_or_says_no_is_not_given_away() {
    let whole = || Storage::new(64, &TensorOptions::new()).unwrap();
    let storage = whole();
    let handle = storage.clone();
    let storage = storage.into_block().unwrap_err();
    drop(handle);
    let part = storage.slice(0..10).unwrap();
    let storage = storage.into_block().unwrap_err();
    drop(storage);
    assert!(part.into_block().is_err());
    let storage = whole();
    let clone = storage.lazy_clone().unwrap();
    let storage = storage.into_block().unwrap_err();
    assert_eq!(storage.nbytes(), 64);
    drop(clone);
    std::mem::forget(storage.read().unwrap());
    assert!(storage.into_block().is_err());
    let says: [fn(&Storage); 4] = [
        |storage| storage.mark_immutable("no"),
        |storage| storage.refuse_writes("no"),
        |storage| storage.refuse_access("no"),
        Storage::mark_foreign_process,
    ];
    for say in says {
        let storage = whole();
        say(&storage);
        assert!(storage.into_block().is_err());
    }
    assert!(Storage::unbound(&TensorOptions::new()).unwrap().into_block().is_err());
}
