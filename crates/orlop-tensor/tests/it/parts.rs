//! Parts of a storage are borrowed independently, and the whole excludes them.

use orlop_core::{DType, Device, Layout, Shape, Strides};
use orlop_tensor::{Borrower, Error, Result, Storage, Tensor, TensorOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn rows<const N: usize>(tensor: &Tensor) -> [Tensor; N] {
    std::array::from_fn(|row| {
        let row = isize::try_from(row).expect("a small number");
        tensor.select(0, row).expect("a row")
    })
}

fn is_written<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Borrowed { by: Borrower::Writer }))
}

fn is_read<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Borrowed { by: Borrower::Readers }))
}

#[test]
fn threads_write_disjoint_rows() {
    let tensor = Tensor::zeros([2, 16], DType::I64).unwrap();
    let times = if cfg!(miri) { 50 } else { 40_000 };
    thread::scope(|scope| {
        for row in rows::<2>(&tensor) {
            scope.spawn(move || {
                for _ in 0..times {
                    row.as_mut_slice::<i64>().unwrap().iter_mut().for_each(|element| *element += 1);
                }
            });
        }
    });
    assert!(tensor.as_slice::<i64>().unwrap().iter().all(|&element| element == times));
    assert_eq!(tensor.version(), 2 * u64::try_from(times).unwrap());
}

#[test]
fn a_row_is_read_while_another_is_written() {
    let tensor = Tensor::full([2, 8], 3, DType::I32).unwrap();
    let [read, written] = rows::<2>(&tensor);
    let times = if cfg!(miri) { 50 } else { 20_000 };
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..times {
                written.fill_(value).unwrap();
            }
        });
        // Inspections do not get in the way, and neither do other readers.
        scope.spawn(|| (0..times).for_each(|_| assert!(tensor.storage().unwrap().capacity().unwrap() >= 64)));
        for _ in 0..2 {
            scope.spawn(|| (0..times).for_each(|_| assert_eq!(read.to_vec::<i32>().unwrap(), [3; 8])));
        }
    });
    assert_eq!(written.to_vec::<i32>().unwrap(), [times - 1; 8]);
}

/// Threads access random ranges; each grant is compared with the ones that exist.
#[test]
fn overlapping_grants_never_meet() {
    const CELLS: usize = 8;
    let storage = Storage::new(CELLS, &TensorOptions::new().zeroed()).unwrap();
    // For each byte: the readers, and a large number for a writer.
    let users: [AtomicUsize; CELLS] = std::array::from_fn(|_| AtomicUsize::new(0));
    const WRITER: usize = 1 << 32;
    let grants = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (storage, users, grants) = (&storage, &users, &grants);
            scope.spawn(move || {
                let mut random = thread * 0x9e37_79b9 + 1;
                let mut next = |below: usize| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    usize::try_from(random >> 33).unwrap() % below
                };
                for _ in 0..if cfg!(miri) { 60 } else { 10_000 } {
                    let start = next(CELLS);
                    let range = start..start + 1 + next(CELLS - start);
                    let (part, writes) = (storage.slice(range.clone()).unwrap(), next(2) == 0);
                    let users = &users[range.clone()];
                    if writes {
                        let Ok(mut guard) = part.write() else { continue };
                        users.iter().for_each(|user| assert_eq!(user.fetch_add(WRITER, Ordering::SeqCst), 0));
                        guard.fill(1);
                        users.iter().for_each(|user| _ = user.fetch_sub(WRITER, Ordering::SeqCst));
                    } else {
                        let Ok(guard) = part.read() else { continue };
                        users.iter().for_each(|user| assert!(user.fetch_add(1, Ordering::SeqCst) < WRITER));
                        assert!(guard.iter().all(|&byte| byte <= 1));
                        users.iter().for_each(|user| _ = user.fetch_sub(1, Ordering::SeqCst));
                    }
                    grants.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(grants.into_inner() > 0);
    // Nothing is left.
    storage.resize(2 * CELLS).unwrap();
}

#[test]
fn overlapping_parts_are_refused() {
    let tensor = Tensor::zeros([4, 4], DType::F32).unwrap();
    let (upper, lower) = (tensor.narrow(0, 0, 2).unwrap(), tensor.narrow(0, 1, 3).unwrap());
    let writer = upper.as_mut_slice::<f32>().unwrap();
    assert!(is_written(lower.as_slice::<f32>()) && is_written(lower.accessor::<f32, 2>()));
    assert!(is_written(lower.as_mut_slice::<f32>()) && is_written(lower.fill_(1)));
    assert!(is_written(lower.to_vec::<f32>()) && is_written(lower.iter::<f32>().map(|_| ())));
    assert!(tensor.select(0, 2).unwrap().fill_(1).is_ok());
    drop(writer);
    let readers = (upper.as_slice::<f32>().unwrap(), lower.accessor::<f32, 2>().unwrap());
    assert!(is_read(tensor.select(0, 1).unwrap().elements_mut::<f32>()));
    assert!(is_read(lower.accessor_mut::<f32, 2>()));
    drop(readers);
    lower.fill_(2).unwrap();
}

/// Strided views that interleave are compared by the bytes from their first to their last element.
#[test]
fn interleaved_views_are_refused() {
    let tensor = Tensor::zeros([4, 4], DType::F32).unwrap();
    let (even, odd) = (tensor.slice(1, None, None, 2).unwrap(), tensor.slice(1, Some(1), None, 2).unwrap());
    let writer = even.accessor_mut::<f32, 2>().unwrap();
    assert!(is_written(odd.accessor::<f32, 2>()));
    // The last element of the hull is not read.
    assert!(tensor.select(0, 3).unwrap().select(0, 3).unwrap().item::<f32>().is_ok());
    drop(writer);
    let columns = (tensor.narrow(1, 0, 2).unwrap(), tensor.narrow(1, 2, 2).unwrap());
    let _reader = columns.0.accessor::<f32, 2>().unwrap();
    assert!(is_read(columns.1.zero_()));
}

#[test]
fn the_whole_excludes_parts() {
    let tensor = Tensor::zeros([2, 4], DType::F32).unwrap();
    let [first, second] = rows::<2>(&tensor);
    let writer = tensor.as_mut_slice::<f32>().unwrap();
    assert!(is_written(first.as_slice::<f32>()) && is_written(second.zero_()));
    drop(writer);
    let reader = tensor.as_slice::<f32>().unwrap();
    assert!(first.as_slice::<f32>().is_ok() && is_read(second.zero_()));
    drop(reader);

    let writer = first.as_mut_slice::<f32>().unwrap();
    assert!(is_written(tensor.as_slice::<f32>()) && is_written(tensor.zero_()));
    drop(writer);
    let reader = first.as_slice::<f32>().unwrap();
    assert!(tensor.as_slice::<f32>().is_ok() && is_read(tensor.zero_()));
    drop(reader);
    tensor.zero_().unwrap();
}

/// A part that covers all bytes is the whole.
#[test]
fn a_part_that_is_all_is_the_whole() {
    let storage = Storage::new(16, &TensorOptions::new().zeroed()).unwrap();
    let (all, half) = (storage.slice(0..16).unwrap(), storage.slice(0..8).unwrap());
    let writer = all.write().unwrap();
    assert!(is_written(storage.read()) && is_written(half.read()));
    drop(writer);
    // After the storage has grown, it is a part.
    storage.resize(32).unwrap();
    let rest = storage.slice(16..32).unwrap();
    let (_writer, _other) = (all.write().unwrap(), rest.write().unwrap());
    assert!(is_written(storage.read()));
}

#[test]
fn a_storage_does_not_change_under_parts() {
    let storage = Storage::new(64, &TensorOptions::new().zeroed()).unwrap();
    let other = Storage::new(64, &TensorOptions::new().zeroed()).unwrap();
    let part = storage.slice(0..8).unwrap();
    let refused = |by: Borrower| {
        let is = |result: Result<()>| matches!(result, Err(Error::Borrowed { by: actual }) if actual == by);
        is(storage.resize(16))
            && is(storage.resize(1 << 20))
            && is(storage.reset())
            && is(storage.clear())
            && is(storage.swap_data(&other))
            && is(other.swap_data(&storage))
            && storage.clone().into_block().is_err()
    };
    let reader = part.read().unwrap();
    assert!(refused(Borrower::Readers));
    // A lazy clone reads the whole.
    let clone = storage.lazy_clone().unwrap();
    drop(reader);
    // The first write copies for the whole storage; then there is only the part.
    let mut writer = part.write().unwrap();
    assert!(refused(Borrower::Writer) && is_written(storage.lazy_clone()));
    writer.fill(7);
    assert_eq!((storage.slice(8..64).unwrap().read().unwrap()[0], clone.read().unwrap()[0]), (0, 0));
    drop(writer);
    assert_eq!(storage.read().unwrap()[..9], [7, 7, 7, 7, 7, 7, 7, 7, 0]);
    storage.resize(1 << 20).unwrap();
    assert!(storage.clear().is_ok() && part.read().unwrap().is_empty());
}

/// A deferred copy needs the whole storage, so other parts are not borrowed meanwhile.
#[test]
fn a_deferred_copy_needs_the_whole() {
    let tensor = Tensor::zeros([2, 4], DType::F32).unwrap();
    let [first, second] = rows::<2>(&tensor);
    let clone = tensor.lazy_clone().unwrap();
    let version = tensor.version();
    let reader = first.as_slice::<f32>().unwrap();
    assert!(is_read(second.fill_(1)));
    drop(reader);
    assert_eq!(tensor.version(), version);
    second.fill_(1).unwrap();
    assert!(tensor.version() == version + 1 && !tensor.storage().unwrap().is_copy_on_write());
    let (reader, _writer) = (first.as_slice::<f32>().unwrap(), second.as_mut_slice::<f32>().unwrap());
    assert_eq!((reader[0], clone.to_vec::<f32>().unwrap()), (0.0, vec![0.0; 8]));
}

#[test]
fn the_first_write_to_a_part_warns_and_refusals_hold() {
    let tensor = Tensor::zeros([2, 4], DType::F32).unwrap();
    let [first, second] = rows::<2>(&tensor);
    let storage = tensor.storage().unwrap();
    let _reader = first.as_slice::<f32>().unwrap();
    storage.warn_on_write("shared");
    second.fill_(1).unwrap();
    storage.refuse_writes("done");
    let error = second.fill_(2).unwrap_err();
    assert_eq!(error.to_string(), "the storage is read-only: done");
    storage.refuse_access("gone");
    assert!(matches!(second.to_vec::<f32>(), Err(Error::AccessRefused { reason: Some(_) })));
    storage.allow_access();
    assert_eq!(second.to_vec::<f32>().unwrap(), [1.0; 4]);
}

#[test]
fn nothing_overlaps_with_nothing() {
    let tensor = Tensor::zeros([4, 4], DType::F32).unwrap();
    let (empty, row) = (tensor.narrow(0, 2, 0).unwrap(), tensor.narrow(0, 1, 2).unwrap());
    let _writer = row.as_mut_slice::<f32>().unwrap();
    assert!(empty.as_mut_slice::<f32>().unwrap().is_empty() && empty.as_slice::<f32>().unwrap().is_empty());
    empty.fill_(1).unwrap();
    let whole = tensor.storage().unwrap();
    assert!(whole.slice(20..20).unwrap().write().unwrap().is_empty());
}

#[test]
fn a_leaked_guard_keeps_its_range() {
    let tensor = Tensor::zeros([3, 4], DType::F32).unwrap();
    let [first, second, third] = rows::<3>(&tensor);
    std::mem::forget(second.as_mut_slice::<f32>().unwrap());
    for _ in 0..20 {
        first.fill_(1).unwrap();
        third.fill_(2).unwrap();
    }
    assert!(is_written(second.as_slice::<f32>()) && is_written(tensor.as_slice::<f32>()));
    // Many leaks: the table grows.
    let leaks = if cfg!(miri) { 20 } else { 1000 };
    (0..leaks).for_each(|_| std::mem::forget(first.as_slice::<f32>().unwrap()));
    assert!(is_read(first.zero_()) && third.zero_().is_ok());
    assert_eq!(first.to_vec::<f32>().unwrap(), [1.0; 4]);
}

#[test]
fn a_panic_ends_the_guard() {
    let tensor = Tensor::zeros([2, 4], DType::F32).unwrap();
    let [first, second] = rows::<2>(&tensor);
    let _reader = second.as_slice::<f32>().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _writer = first.as_mut_slice::<f32>().unwrap();
        assert!(is_written(first.as_slice::<f32>()));
        panic!("a user's");
    }));
    assert!(panicked.is_err());
    first.fill_(1).unwrap();
}

/// A guard may be dropped by another thread.
#[test]
fn guards_are_sent() {
    let tensor = Tensor::zeros([2, 4], DType::F32).unwrap();
    let [first, second] = rows::<2>(&tensor);
    let mut writer = first.as_mut_slice::<f32>().unwrap();
    let reader = second.as_slice::<f32>().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            writer.fill(2.0);
            drop(reader);
        });
    });
    second.zero_().unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [2.0; 4]);
}

/// Buffers that are planned into one pool.
#[test]
fn tensors_in_a_pool_are_used_at_once() {
    let pool = Storage::new(256, &TensorOptions::new().zeroed()).unwrap();
    let [from, to] = [0, 128].map(|start| Tensor::bind(&pool, start, [32], DType::F32).unwrap());
    let values = from.as_mut_slice::<f32>().unwrap();
    // More tensors can be bound meanwhile.
    assert!(Tensor::bind(&pool, 64, [8], DType::F32).is_ok());
    to.fill_(3).unwrap();
    drop(values);
    let reader = to.as_slice::<f32>().unwrap();
    from.copy_(&to).unwrap();
    assert_eq!(*reader, *from.as_slice::<f32>().unwrap());
    let diagnosis = from.diagnose();
    assert!(diagnosis.unreadable.is_none() && diagnosis.block.is_some());
}

/// A view whose storage has shrunk, and a hand-made layout beyond the address space.
#[test]
fn hulls_outside_the_storage() {
    let storage = Storage::new(64, &TensorOptions::new().zeroed()).unwrap();
    let tensor =
        Tensor::from_storage(storage.clone(), Layout::contiguous(Shape::new(&[16]).unwrap()), DType::F32);
    let tensor = tensor.unwrap();
    let last = tensor.narrow(0, 12, 4).unwrap();
    storage.resize(32).unwrap();
    assert!(matches!(last.as_mut_slice::<f32>(), Err(Error::Layout(_))));
    assert!(matches!(tensor.as_slice::<f32>(), Err(Error::Layout(_))));
    let mut far = tensor.narrow(0, 0, 4).unwrap();
    let shape = Shape::new(&[2]).unwrap();
    let strides = Strides::new(&[1usize]).unwrap();
    for offset in [usize::MAX / 8, isize::MAX.unsigned_abs() - 2, usize::MAX / 4 - 1] {
        let Ok(layout) = Layout::new(shape.clone(), strides.clone(), offset) else { continue };
        far.set_layout(layout).unwrap();
        assert!(far.as_slice::<f32>().is_err() && far.fill_(1).is_err() && far.to_vec::<f32>().is_err());
    }
    storage.resize(64).unwrap();
    last.fill_(1).unwrap();
    assert_eq!(tensor.device(), Device::CPU);
}

/// Guards of no bytes, which have none in common with others.
#[test]
fn empty_guards_refuse_no_access() {
    let tensor = Tensor::zeros([8, 8], DType::F32).unwrap();
    let empty = tensor.narrow(0, 3, 0).unwrap();
    let written = empty.as_mut_slice::<f32>().unwrap();
    let read = empty.as_slice::<f32>().unwrap();
    assert_eq!(tensor.as_slice::<f32>().unwrap().len(), 64);
    let row = tensor.select(0, 3).unwrap();
    row.as_mut_slice::<f32>().unwrap().fill(1.0);
    // They have the block.
    assert!(is_read(tensor.storage().unwrap().resize(8192)));
    drop((written, read));
    tensor.fill_(2.0).unwrap();
    // Conditions of an access hold for them, too.
    tensor.storage().unwrap().refuse_writes("weights");
    assert!(empty.as_slice::<f32>().is_ok());
    assert!(matches!(empty.as_mut_slice::<f32>(), Err(Error::ReadOnly { .. })));
    tensor.storage().unwrap().refuse_access("gone");
    assert!(matches!(empty.as_slice::<f32>(), Err(Error::AccessRefused { .. })));
}

/// A deferred copy is made first, as under each write guard.
#[test]
fn an_empty_write_guard_has_a_block_of_its_own() {
    let storage = Storage::new(4096, &TensorOptions::new()).unwrap();
    storage.write().unwrap().fill(7);
    let clone = storage.lazy_clone().unwrap();
    let guard = storage.slice(100..100).unwrap();
    let guard = guard.write().unwrap();
    assert!(guard.is_empty());
    assert_ne!(storage.as_ptr().unwrap(), clone.as_ptr().unwrap());
    assert!(storage.read().unwrap().iter().all(|&byte| byte == 7) && is_read(storage.write()));
    drop(guard);
    storage.write().unwrap().fill(8);
    assert!(clone.read().unwrap().iter().all(|&byte| byte == 7));
}

/// A tensor without elements that is bound to a pool takes nothing from it.
#[test]
fn an_empty_part_leaves_its_pool_free() {
    let pool = Storage::new(4096, &TensorOptions::new()).unwrap();
    let tensor = Tensor::unbound([0], DType::F32).unwrap();
    tensor.bind_in(&pool, 256).unwrap();
    assert!(pool.read().is_ok() && pool.write().is_ok());
    pool.resize(1 << 20).unwrap();
    pool.clear().unwrap();
    assert!(tensor.to_vec::<f32>().unwrap().is_empty());
    tensor.fill_(1.0).unwrap();
    drop(pool);
    assert!(tensor.as_mut_slice::<f32>().unwrap().is_empty());
}
