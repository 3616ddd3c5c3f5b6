//! The current context counts the memory of tensors of every origin.

use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::System;
use orlop_alloc::engine::Arena;
use orlop_alloc::{Allocator as _, AllocatorRef, Error as AllocError, Refusal};
use orlop_context::Context;
use orlop_context::{AllocatorConfig, Budget, Source};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};

fn context() -> Context {
    Context::with(Device::CPU, AllocatorConfig::new())
}

#[test]
fn vectors_and_what_they_become_are_counted_where_they_are_made() {
    let (here, there) = (context(), context());
    let tensor = here.scope(|| Tensor::from_vec([4, 25], vec![1.0f32; 100])).unwrap();
    assert_eq!((here.memory_map().live_from(Source::Foreign), there.memory_map().total()), (400, 0));
    // Views and handles allocate nothing; a lazy clone is memory of the same context, wherever it is made.
    let view = tensor.narrow(0, 1, 2).unwrap();
    let clone = there.scope(|| tensor.lazy_clone()).unwrap();
    assert_eq!((here.memory_map().live_from(Source::Foreign), there.memory_map().total()), (400, 0));
    assert!(here.memory_map().live_from(Source::Registered) >= 400);
    drop(clone);
    // A copy is memory of the context in which it is made.
    let copy = there.scope(|| tensor.duplicate()).unwrap();
    assert!(there.memory_map().requested(MemoryKind::Default) >= 400);
    assert!(!tensor.storage().unwrap().is_resizable());
    drop((tensor, here.clone()));
    assert_eq!(here.memory_map().total(), 400);
    drop(view);
    assert_eq!(here.memory_map().total(), 0);
    drop((there, here));
    assert_eq!(copy.to_vec::<f32>().unwrap(), [1.0; 100]);
}

#[test]
fn an_arena_for_tensors_is_counted_and_bounded() {
    let context = context();
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(10_000)).unwrap();
    let options = TensorOptions::from(DType::U8).kind(MemoryKind::Workspace).allocator(&arena);
    let first = context.scope(|| Tensor::empty([6000], options)).unwrap();
    assert_eq!(context.memory_map().requested(MemoryKind::Workspace), 6016);
    for refused in [
        context.scope(|| Tensor::empty([6000], options)),
        // In an explicit context.
        Tensor::empty([6000], options.context(&context)),
    ] {
        let Err(Error::Alloc(AllocError::OutOfMemory(report))) = refused else { panic!("over budget") };
        assert_eq!((report.refusal, report.kind), (Refusal::Budget, MemoryKind::Workspace));
    }
    drop(first);
    drop(context.scope(|| Tensor::empty([6000], options)).unwrap());
}

#[test]
fn what_dropping_a_storage_would_free() {
    let whole = Storage::new(1000, &TensorOptions::new()).unwrap();
    let granted = whole.block().unwrap().granted;
    assert_eq!(whole.would_free().unwrap(), granted);
    let part = whole.slice(0..10).unwrap();
    assert_eq!((whole.would_free().unwrap(), part.would_free().unwrap()), (0, 0));
    drop(whole);
    assert_eq!(part.would_free().unwrap(), granted);
    let copy = part.lazy_clone().unwrap();
    assert_eq!((part.would_free().unwrap(), copy.would_free().unwrap()), (0, 0));
    drop(copy);
    let reading = part.read().unwrap();
    assert_eq!(part.would_free().unwrap(), granted);
    drop(reading);
    // A writer of a part does not replace the block.
    let writing = part.write().unwrap();
    assert_eq!(part.would_free().unwrap(), granted);
    drop(writing);
    let whole = Storage::new(1000, &TensorOptions::new()).unwrap();
    let writing = whole.write().unwrap();
    assert!(matches!(whole.would_free(), Err(Error::Borrowed { .. })));
    drop(writing);

    let tensor = Tensor::zeros([100], DType::F32).unwrap();
    assert!(tensor.would_free().unwrap() >= 400);
    let handle = tensor.clone();
    assert_eq!(tensor.would_free().unwrap(), 0);
    drop(handle);
    let view = tensor.view([10, 10]).unwrap();
    assert_eq!((tensor.would_free().unwrap(), view.would_free().unwrap()), (0, 0));
    drop(tensor);
    assert!(view.would_free().unwrap() >= 400);
    assert_eq!(Tensor::undefined().would_free().unwrap(), 0);
}

#[cfg(feature = "safetensors")]
#[test]
fn mapped_weights_are_persistent_memory() {
    use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, save};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let weights = Tensor::full([1000], 1.0, DType::F32).unwrap();
    save(&path, [("weights", &weights)], &Metadata::new()).unwrap();
    let context = context();
    context.scope(|| {
        // SAFETY: nothing else uses the file.
        let file = unsafe { SafeTensors::map(&path) }.unwrap();
        let tensor = file.tensor("weights").unwrap().clone();
        drop(file);
        let map = context.memory_map();
        let mapped = std::fs::metadata(&path).unwrap().len();
        assert_eq!((map.live(MemoryKind::Persistent), map.live_from(Source::Mapped)), (mapped, mapped));
        assert_eq!(
            map.allocators.iter().find(|one| one.source == Source::Mapped).map(|one| one.reserved),
            Some(mapped)
        );
        drop(tensor);
        assert_eq!(context.memory_map().total(), 0);
    });
}

#[test]
fn an_allocator_that_tensors_use_is_not_kept() {
    let context = context();
    let arena: AllocatorRef = Arena::new(System::new(), 1 << 12).into_ref().erase();
    let tensor = Tensor::zeros([64], TensorOptions::new().allocator(&arena).context(&context)).unwrap();
    assert!(arena.is_unique());
    drop(arena);
    assert_eq!(context.memory_map().live_from(Source::Explicit), 256);
    drop(tensor);
    assert!(context.memory_map().allocators.is_empty());
}

#[test]
fn growing_in_place_needs_no_more_than_the_difference() {
    let context = context();
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(100 << 10)).unwrap();
    let options = TensorOptions::new().kind(MemoryKind::KvCache);
    context.scope(|| {
        let storage = Storage::new(60 << 10, &options).unwrap();
        storage.write().unwrap().fill(7);
        let address = storage.as_ptr().unwrap();
        // Old and new block together would not fit.
        storage.resize(90 << 10).unwrap();
        assert_eq!((storage.as_ptr().unwrap(), storage.nbytes()), (address, 90 << 10));
        assert!(storage.read().unwrap()[..60 << 10].iter().all(|&byte| byte == 7));
        let live = context.budget_status(Device::CPU, MemoryKind::KvCache).live;
        assert_eq!(live, context.memory_map().live(MemoryKind::KvCache));
        assert_eq!(live, storage.block().unwrap().granted as u64);
        assert!(storage.resize(200 << 10).is_err());
        assert_eq!(storage.nbytes(), 90 << 10);
        drop(storage);
        assert_eq!(
            (context.budget_status(Device::CPU, MemoryKind::KvCache).live, context.memory_map().total()),
            (0, 0)
        );
        context.allocator(Device::CPU, MemoryKind::KvCache).unwrap().verify().unwrap();
    });
    // Also in an arena that was passed; lazy copies keep their memory alive.
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    context.scope(|| {
        let storage = Storage::new(60 << 10, &options.allocator(&arena)).unwrap();
        storage.resize(90 << 10).unwrap();
        assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).live, 90 << 10);
        assert!(storage.resize(110 << 10).is_err());
        let copy = storage.lazy_clone().unwrap();
        assert!(storage.resize(95 << 10).is_err(), "the copy keeps the old bytes");
        drop(copy);
        storage.resize(95 << 10).unwrap();
    });
}

/// An adaptor counts growth in place, or refuses it.
#[test]
fn growing_in_place_behind_a_limit() {
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    let limited = Limit::new(arena, 100 << 10).into_ref();
    let used = || limited.used();
    let allocator = limited.clone().erase();
    let storage = Storage::new(60 << 10, &TensorOptions::new().allocator(&allocator)).unwrap();
    let address = storage.as_ptr().unwrap();
    // Old and new block together would not fit.
    storage.resize(90 << 10).unwrap();
    assert_eq!((storage.as_ptr().unwrap(), used()), (address, 90 << 10));
    assert!(storage.resize(110 << 10).is_err());
    assert_eq!((storage.nbytes(), used()), (90 << 10, 90 << 10));
    drop(storage);
    assert_eq!(used(), 0);
}
