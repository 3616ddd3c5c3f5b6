//! Copy-on-write.

use orlop_context::Context;
use orlop_core::{DType, Device};
use orlop_tensor::{Storage, Tensor, TensorOptions};
use std::sync::Arc;

fn address(tensor: &Tensor) -> *const u8 {
    tensor.storage().and_then(|storage| storage.as_ptr()).expect("a tensor that is not being written")
}

fn counted() -> Tensor {
    Tensor::arange(0.0, 100.0, 1.0, DType::I32).expect("memory")
}

#[test]
fn reading_never_copies_and_the_first_writer_copies_itself() {
    let first = counted();
    let second = first.lazy_clone().unwrap();
    assert!(!first.is_alias_of(&second) && first.storage().unwrap().is_copy_on_write());
    assert_eq!(first.to_vec::<i32>().unwrap(), second.to_vec::<i32>().unwrap());
    assert_eq!(address(&first), address(&second));
    second.fill_(7).unwrap();
    assert_ne!(address(&first), address(&second));
    assert_eq!((first.to_vec::<i32>().unwrap()[3], second.to_vec::<i32>().unwrap()[3]), (3, 7));
}

#[test]
fn the_last_owner_copies_nothing() {
    let first = counted();
    let place = address(&first);
    let others: Vec<_> = (0..3).map(|_| first.lazy_clone().unwrap()).collect();
    others[0].fill_(1).unwrap();
    drop(others);
    let context = Context::new();
    let before = context.stats(Device::CPU).totals.all.allocations;
    context.scope(|| first.fill_(2)).unwrap();
    assert_eq!((address(&first), context.stats(Device::CPU).totals.all.allocations), (place, before));
    assert!(!first.storage().unwrap().is_copy_on_write());
}

#[test]
fn views_of_one_side_stay_together() {
    let tensor = counted().view([10, 10]).unwrap();
    let row = tensor.select(0, 2).unwrap();
    let clone = row.lazy_clone().unwrap();
    assert_eq!((clone.sizes(), clone.storage_offset()), (&[10][..], 20));
    row.fill_(-1).unwrap();
    assert_eq!(tensor.select(0, 2).unwrap().to_vec::<i32>().unwrap(), [-1; 10]);
    assert_eq!(clone.to_vec::<i32>().unwrap(), (20..30).collect::<Vec<_>>());
    assert_eq!((tensor.version(), clone.version()), (2, 0));
}

#[test]
fn real_copies_where_putting_off_cannot_be() {
    let outside = Tensor::from_vec([3], vec![1i32, 2, 3]).unwrap();
    let clone = outside.lazy_clone().unwrap();
    assert_ne!(address(&outside), address(&clone));
    assert!(!clone.storage().unwrap().is_copy_on_write());
    assert_eq!(clone.to_vec::<i32>().unwrap(), [1, 2, 3]);
    let escaped = counted();
    let _address = escaped.storage().unwrap().as_mut_ptr().unwrap();
    let clone = escaped.lazy_clone().unwrap();
    assert_ne!(address(&escaped), address(&clone));
    let foreign = counted();
    foreign.storage().unwrap().mark_foreign_process();
    assert_ne!(address(&foreign.lazy_clone().unwrap()), address(&foreign));
}

#[test]
fn refused_during_a_write() {
    let tensor = counted();
    let writer = tensor.as_mut_slice::<i32>().unwrap();
    assert!(tensor.lazy_clone().is_err());
    drop(writer);
    let reader = tensor.as_slice::<i32>().unwrap();
    let clone = tensor.lazy_clone().unwrap();
    clone.fill_(0).unwrap();
    assert_eq!(reader[99], 99);
}

#[test]
fn many_threads_write_their_own() {
    let original = Arc::new(counted());
    let rounds = if cfg!(miri) { 3 } else { 200 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let original = Arc::clone(&original);
            scope.spawn(move || {
                for round in 0..rounds {
                    let clone = original.lazy_clone().unwrap();
                    assert_eq!(clone.as_slice::<i32>().unwrap()[50], 50);
                    let mine = thread * 1000 + round;
                    clone.fill_(mine).unwrap();
                    assert_eq!(clone.to_vec::<i32>().unwrap(), [mine; 100]);
                }
            });
        }
    });
    assert_eq!(original.to_vec::<i32>().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn resizing_one_leaves_the_other() {
    let storage = Storage::new(100, &TensorOptions::new().zeroed()).unwrap();
    let clone = storage.lazy_clone().unwrap();
    storage.resize(10_000).unwrap();
    storage.write().unwrap().fill(1);
    assert_eq!((clone.nbytes(), clone.read().unwrap()[50]), (100, 0));
    clone.resize(120).unwrap();
    clone.write().unwrap().fill(2);
    assert_eq!(storage.read().unwrap()[119], 1);
}
