//! Storages keep the origin of their memory, and get later memory from there.

use orlop_alloc::backing::System;
use orlop_alloc::engine::{Arena, Direct};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_context::Context;
use orlop_context::{AllocatorConfig, Budget};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};

/// Returns the live bytes of an allocator.
fn live(allocator: &AllocatorRef) -> u64 {
    allocator.stats().live()
}

fn allocations(context: &Context) -> u64 {
    context.stats(Device::CPU).totals.all.allocations
}

fn arena() -> AllocatorRef {
    Arena::new(System::new(), 1 << 16).into_ref().erase()
}

/// Returns `true` if the storage's memory is from this allocator.
fn is_from(storage: &Storage, allocator: &AllocatorRef) -> bool {
    storage.block().expect("no write in progress").is_from(allocator)
}

/// In the default context, tests on other threads may hold a handle of the arena for a moment.
fn in_own_context(test: impl FnOnce()) {
    Context::new().scope(test);
}

#[test]
fn growing_stays_in_the_arena() {
    in_own_context(|| {
        let arena = arena();
        let storage = Storage::new(100, &TensorOptions::new().allocator(&arena)).unwrap();
        storage.write().unwrap().fill(7);
        storage.resize(5000).unwrap();
        assert!(is_from(&storage, &arena) && storage.read().unwrap()[..100] == [7; 100]);
        storage.reset().unwrap();
        assert_eq!((storage.nbytes(), live(&arena)), (0, 0));
        storage.reset().unwrap();
        storage.resize(300).unwrap();
        assert!(is_from(&storage, &arena));
        storage.clear().unwrap();
        assert_eq!(live(&arena), 0);
        storage.resize(300).unwrap();
        assert!(is_from(&storage, &arena));
        drop(storage);
        assert!(arena.is_unique(), "the kept handle was dropped");
    });
}

#[test]
fn an_empty_storage_keeps_its_allocator_and_a_full_one_does_not() {
    in_own_context(|| {
        let arena = arena();
        let storage = Storage::new(100, &TensorOptions::new().allocator(&arena)).unwrap();
        assert!(arena.is_unique());
        storage.reset().unwrap();
        assert!(!arena.is_unique());
        storage.resize(10).unwrap();
        assert!(arena.is_unique());
        drop(arena);
        // The last handle was dropped: the context allocates.
        storage.resize(100_000).unwrap();
        assert_eq!(storage.nbytes(), 100_000);
    });
}

#[test]
fn the_first_write_after_a_lazy_clone_copies_in_the_arena() {
    let arena = arena();
    let first = Tensor::full([64], 3, TensorOptions::from(DType::I32).allocator(&arena)).unwrap();
    let second = first.lazy_clone().unwrap();
    second.fill_(4).unwrap();
    for tensor in [&first, &second] {
        assert!(is_from(tensor.storage().unwrap(), &arena));
    }
    let escaped = first.storage().unwrap();
    let _address = escaped.as_mut_ptr().unwrap();
    assert!(is_from(&escaped.lazy_clone().unwrap(), &arena));
}

#[test]
fn a_context_that_is_not_current_is_kept_too() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Direct::new(System::new()).into_ref()).unwrap();
    let storage = Storage::new(100, &TensorOptions::new().context(&context)).unwrap();
    let clone = storage.lazy_clone().unwrap();
    assert_eq!(allocations(&context), 1);
    clone.write().unwrap().fill(1);
    assert_eq!(allocations(&context), 2);
    storage.resize(1000).unwrap();
    assert_eq!(allocations(&context), 3);
    storage.reset().unwrap();
    storage.resize(10).unwrap();
    assert_eq!(allocations(&context), 4);
}

/// If the current context selects the same allocator, it allocates, with the adaptors registered since.
#[test]
fn the_contexts_budget_applies_to_what_grows() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.scope(|| {
        let early = Storage::new(1000, &TensorOptions::new()).unwrap();
        context.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(1 << 16).strict()).unwrap();
        let late = Storage::new(1000, &TensorOptions::new()).unwrap();
        for storage in [early, late] {
            assert!(matches!(storage.resize(1 << 20), Err(Error::Alloc(error)) if error.is_out_of_memory()));
            assert_eq!(storage.nbytes(), 1000);
            storage.reset().unwrap();
            assert!(storage.resize(1 << 20).is_err() && storage.nbytes() == 0);
            storage.resize(2000).unwrap();
            assert!(context.budget_status(Device::CPU, MemoryKind::Default).live >= 2000);
        }
    });
}

#[test]
fn memory_that_comes_late_is_as_the_options_said() {
    let arena = arena();
    // Old bytes where the new ones will be.
    let allocator = Arena::new(System::new(), 1 << 16).into_ref();
    for handle in [arena.clone(), allocator.clone().erase()] {
        Storage::new(4096, &TensorOptions::new().allocator(&handle)).unwrap().write().unwrap().fill(9);
    }
    allocator.reset().unwrap();
    let handle = allocator.erase();
    let options = TensorOptions::new().zeroed().allocator(&handle);
    let storage = Storage::unbound(&options).unwrap();
    storage.bind(4096).unwrap();
    assert!(is_from(&storage, &handle) && storage.read().unwrap().iter().all(|&byte| byte == 0));

    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let storage = Storage::unbound(&TensorOptions::new().context(&context)).unwrap();
    storage.bind(100).unwrap();
    assert_eq!(allocations(&context), 1);

    let storage = Storage::unbound(&TensorOptions::new().allocator(&arena)).unwrap();
    storage.bind(0).unwrap();
    storage.resize(100).unwrap();
    assert!(is_from(&storage, &arena));
}

#[test]
fn zeroed_memory_that_comes_late_from_where_old_bytes_were() {
    for _ in 0..10 {
        let used: Vec<_> = (0..8).map(|_| Storage::new(4096, &TensorOptions::new()).unwrap()).collect();
        used.iter().for_each(|storage| storage.write().unwrap().fill(0xAA));
        drop(used);
        let storage = Storage::unbound(&TensorOptions::new().zeroed()).unwrap();
        storage.bind(4096).unwrap();
        assert!(storage.read().unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn what_is_made_empty_grows_where_it_was_to_be() {
    let arena = arena();
    let storage = Storage::new(0, &TensorOptions::new().allocator(&arena)).unwrap();
    storage.resize(100).unwrap();
    assert!(is_from(&storage, &arena));
    let mut tensor = Tensor::empty([0, 3], TensorOptions::new().allocator(&arena)).unwrap();
    tensor.resize_([2, 3]).unwrap();
    assert!(is_from(tensor.storage().unwrap(), &arena));
}

#[test]
fn what_was_refused_can_be_tried_again() {
    let limited = Arena::with_limit(System::new(), 4096, 4096).into_ref().erase();
    let storage = Storage::unbound(&TensorOptions::new().zeroed().allocator(&limited)).unwrap();
    assert!(storage.bind(1 << 20).is_err() && storage.is_unbound());
    storage.bind(1000).unwrap();
    assert!(is_from(&storage, &limited));
    storage.reset().unwrap();
    assert!(storage.resize(1 << 20).is_err());
    storage.resize(1000).unwrap();
    assert!(is_from(&storage, &limited));
}

#[test]
fn what_is_remembered_is_swapped_with_the_memory() {
    let (here, there) = (arena(), arena());
    let unbound = Storage::unbound(&TensorOptions::new().allocator(&here)).unwrap();
    let empty = Storage::new(10, &TensorOptions::new().allocator(&there)).unwrap();
    empty.reset().unwrap();
    unbound.swap_data(&empty).unwrap();
    assert!(empty.is_unbound() && !unbound.is_unbound());
    empty.bind(10).unwrap();
    unbound.resize(10).unwrap();
    assert!(is_from(&empty, &here) && is_from(&unbound, &there));
}

#[test]
fn the_allocator_of_a_block_is_known() {
    let arena = arena();
    let block: Block = arena.allocate(&Request::new(100)).unwrap();
    assert!(block.allocator().is_some_and(|allocator| allocator.same_as(&arena)));
    let tensor = Tensor::zeros([4], TensorOptions::new().allocator(&arena)).unwrap();
    let block = tensor.storage().unwrap().block().unwrap();
    assert!(block.allocator().is_some_and(|allocator| allocator.same_as(&arena)));
    assert_eq!(tensor.diagnose().block.unwrap().allocator.as_deref(), Some("arena"));
}
