//! Storages that are bound in place: to foreign memory, to a part of a pool, and to nothing.

use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryFormat, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions, Unresizable};
use std::ptr::NonNull;
use std::sync::Arc;

/// Returns a block of foreign memory and its owner, whose count says whether the block has dropped it.
fn foreign(bytes: usize) -> (Block, Arc<Vec<u64>>) {
    let owner = Arc::new(vec![0; bytes.div_ceil(8)]);
    let ptr = NonNull::from(owner.as_slice()).cast();
    let mut record = Record::new(ptr, bytes, Device::CPU, Access::Host);
    (record.requested, record.kind) = (bytes, MemoryKind::KvCache);
    // SAFETY: the vector lives as long as its owner, and the tests do not use it otherwise.
    (unsafe { Block::foreign(record, Deleter::from_owner(Arc::clone(&owner))) }, owner)
}

fn pool(bytes: usize) -> Storage {
    Storage::new(bytes, &TensorOptions::new().kind(MemoryKind::Workspace).zeroed()).expect("memory")
}

#[test]
fn foreign_memory_is_bound_in_place() {
    let context = Context::new();
    context.scope(|| {
        let tensor = Tensor::unbound([4, 4], DType::F32).unwrap();
        let (view, storage) = (tensor.t().unwrap(), tensor.storage().unwrap());
        for round in 0..3u8 {
            let (block, owner) = foreign(64);
            storage.bind_block(block).unwrap();
            assert_eq!((storage.nbytes(), storage.memory_kind()), (64, MemoryKind::KvCache));
            assert_eq!(storage.block().unwrap().kind, MemoryKind::KvCache);
            assert_eq!(storage.as_ptr().unwrap(), owner.as_ptr().cast());
            assert!(matches!(storage.resize(8), Err(Error::NotResizable { why: Unresizable::Foreign })));
            tensor.fill_(round).unwrap();
            assert_eq!(view.to_vec::<f32>().unwrap(), [f32::from(round); 16]);
            assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, 64);
            let (other, other_owner) = foreign(8);
            let refused = storage.bind_block(other).unwrap_err();
            assert!(matches!(refused.source, Error::AlreadyBound));
            drop(refused);
            assert_eq!((Arc::strong_count(&owner), Arc::strong_count(&other_owner)), (2, 1));
            // Once, whichever way the storage loses it.
            match round {
                0 => drop(storage.unbind().unwrap()),
                1 => {
                    let block = storage.unbind().unwrap();
                    assert_eq!(Arc::strong_count(&owner), 2);
                    storage.bind_block(block).unwrap();
                    storage.clear().unwrap();
                    drop(storage.unbind().unwrap());
                }
                _ => {
                    storage.bind(64).err().unwrap();
                    drop(storage.unbind().unwrap());
                }
            }
            assert_eq!((Arc::strong_count(&owner), context.stats(Device::CPU).live()), (1, 0));
            assert!(matches!(view.to_vec::<f32>(), Err(Error::Unbound { revoked: None })));
        }
        let (block, owner) = foreign(64);
        storage.bind_block(block).unwrap();
        drop(tensor);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(view);
        assert_eq!(Arc::strong_count(&owner), 1);
    });
}

/// Foreign memory that is smaller, or crooked, is refused by the accesses that need more.
#[test]
fn foreign_memory_that_does_not_fit() {
    let tensor = Tensor::unbound([16], DType::F32).unwrap();
    let (block, _owner) = foreign(60);
    tensor.storage().unwrap().bind_block(block).unwrap();
    assert!(matches!(tensor.to_vec::<f32>(), Err(Error::Layout(_))));
    assert!(matches!(tensor.fill_(0.0), Err(Error::Layout(_))));
    assert_eq!(tensor.narrow(0, 0, 15).unwrap().to_vec::<f32>().unwrap(), [0.0; 15]);
}

/// An access to a tensor, with its name.
type NamedAccess<'a> = (&'a str, Box<dyn Fn() -> orlop_tensor::Result<()> + 'a>);

/// Every way to the bytes of a tensor without memory has the same error.
#[test]
fn every_access_without_memory_has_one_error() {
    let tensor = Tensor::full([4, 4], 1.0, DType::F32).unwrap();
    let one = tensor.select(0, 0).unwrap().select(0, 0).unwrap();
    drop(tensor.storage().unwrap().unbind().unwrap());
    let with_memory = Tensor::zeros([4, 4], DType::F32).unwrap();
    let storage = tensor.storage().unwrap();
    let accesses: Vec<NamedAccess<'_>> = vec![
        ("to_vec", Box::new(|| tensor.to_vec::<f32>().map(drop))),
        ("to_vec of a view", Box::new(|| tensor.t()?.to_vec::<f32>().map(drop))),
        ("item", Box::new(|| one.item::<f32>().map(drop))),
        ("as_slice", Box::new(|| tensor.as_slice::<f32>().map(drop))),
        ("as_mut_slice", Box::new(|| tensor.as_mut_slice::<f32>().map(drop))),
        ("accessor", Box::new(|| tensor.accessor::<f32, 2>().map(drop))),
        ("accessor_mut", Box::new(|| tensor.accessor_mut::<f32, 2>().map(drop))),
        ("iter", Box::new(|| tensor.iter::<f32>().map(drop))),
        ("elements_mut", Box::new(|| tensor.elements_mut::<f32>().map(drop))),
        ("fill_", Box::new(|| tensor.fill_(1.0))),
        ("copy_ to", Box::new(|| tensor.copy_(&with_memory))),
        ("copy_ from", Box::new(|| with_memory.copy_(&tensor))),
        ("duplicate", Box::new(|| tensor.duplicate().map(drop))),
        ("to", Box::new(|| tensor.to(DType::F64).map(drop))),
        ("contiguous", Box::new(|| tensor.t()?.contiguous(MemoryFormat::Contiguous).map(drop))),
        ("lazy_clone", Box::new(|| tensor.lazy_clone().map(drop))),
        ("as_strided", Box::new(|| tensor.as_strided([2], [1], None).map(drop))),
        (
            "from_storage",
            Box::new(|| Tensor::from_storage(storage.clone(), tensor.layout().clone(), DType::F32).map(drop)),
        ),
        ("bind", Box::new(|| Tensor::bind(storage, 0, [4], DType::F32).map(drop))),
        ("slice", Box::new(|| storage.slice(0..4).map(drop))),
        ("read", Box::new(|| storage.read().map(drop))),
        ("write", Box::new(|| storage.write().map(drop))),
        ("as_ptr", Box::new(|| storage.as_ptr().map(drop))),
        ("as_mut_ptr", Box::new(|| storage.as_mut_ptr().map(drop))),
        ("resize", Box::new(|| storage.resize(8))),
        ("unbind", Box::new(|| storage.unbind().map(drop))),
    ];
    for (name, access) in accesses {
        let result = access();
        assert!(matches!(result, Err(Error::Unbound { revoked: None })), "{name}: {result:?}");
    }
}

#[test]
fn a_part_of_a_pool_is_bound_in_place() {
    let pool = pool(4096);
    let tensor = Tensor::unbound([16, 16], DType::F32).unwrap();
    let other = Tensor::unbound([16, 16], DType::F32).unwrap();
    let view = tensor.narrow(0, 15, 1).unwrap();
    tensor.bind_in(&pool, 1024).unwrap();
    let storage = tensor.storage().unwrap();
    assert_eq!((storage.nbytes(), storage.memory_kind()), (1024, MemoryKind::Workspace));
    assert_eq!(storage.as_ptr().unwrap().addr(), address_of(&pool, 1024));
    // The bytes are its own, until it gives them back; all others are not affected.
    for taken in [1024..1025, 2047..2048, 0..4096] {
        let part = pool.slice(taken).unwrap();
        assert!(matches!(part.read(), Err(Error::Borrowed { .. })));
        assert!(matches!(part.write(), Err(Error::Borrowed { .. })));
    }
    assert!(matches!(other.bind_in(&pool, 2044), Err(Error::Borrowed { .. })));
    assert!(other.storage().unwrap().is_unbound());
    pool.slice(0..1024).unwrap().write().unwrap().fill(9);
    other.bind_in(&pool, 2048).unwrap();
    other.fill_(2.0).unwrap();
    view.fill_(1.0).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap()[239..241], [0.0, 1.0]);
    assert!(pool.resize(8).is_err() && pool.clear().is_err() && pool.lazy_clone().is_err());
    assert!(matches!(storage.resize(8), Err(Error::NotResizable { why: Unresizable::Part })));
    assert!(matches!(tensor.bind_in(&pool, 0), Err(Error::AlreadyBound)));
    drop(storage.unbind().unwrap());
    assert!(view.to_vec::<f32>().is_err());
    let part = pool.slice(1024..2048).unwrap();
    assert_eq!(part.read().unwrap()[960..964], 1.0f32.to_ne_bytes());
    // The pool's memory lives as long as it is used.
    drop(part);
    drop(pool);
    assert_eq!(other.to_vec::<f32>().unwrap(), [2.0; 256]);
}

/// Returns the address of a byte, without an access to the bytes.
fn address_of(storage: &Storage, byte: usize) -> usize {
    storage.block().expect("no write of the whole").address() + byte
}

#[test]
fn parts_of_pools_have_conditions() {
    let pool = pool(256);
    let tensor = || Tensor::unbound([16], DType::F32).unwrap();
    assert!(matches!(tensor().bind_in(&pool, 200), Err(Error::Layout(_))));
    assert!(matches!(tensor().bind_in(&pool, usize::MAX), Err(Error::Layout(_))));
    assert!(matches!(tensor().bind_in(&pool, 2), Err(Error::Misaligned { align: 4, .. })));
    let bound = Tensor::zeros([16], DType::F32).unwrap();
    assert!(matches!(bound.bind_in(&pool, 0), Err(Error::AlreadyBound)));
    assert!(matches!(tensor().bind_in(tensor().storage().unwrap(), 0), Err(Error::Unbound { .. })));
    let mine = tensor();
    assert!(mine.bind_in(mine.storage().unwrap(), 0).is_err());
    let read = pool.read().unwrap();
    assert!(matches!(tensor().bind_in(&pool, 0), Err(Error::Borrowed { .. })));
    drop(read);
    // All of it, without elements, and a part of a part.
    let all = Tensor::unbound([64], DType::F32).unwrap();
    all.bind_in(&pool, 0).unwrap();
    assert!(pool.block().is_err(), "it is written as a whole");
    drop(all);
    let nothing = Tensor::unbound([0], DType::F32).unwrap();
    nothing.bind_in(&pool, 256).unwrap();
    let inner = tensor();
    inner.bind_in(&pool.slice(64..192).unwrap(), 64).unwrap();
    assert_eq!(inner.storage().unwrap().as_ptr().unwrap().addr(), address_of(&pool, 128));
    inner.fill_(1.0).unwrap();
    drop((nothing, inner));
    assert_eq!(pool.read().unwrap()[128..132], 1.0f32.to_ne_bytes());
    pool.mark_immutable("a test");
    assert!(matches!(tensor().bind_in(&pool, 0), Err(Error::ReadOnly { .. })));
}

/// Threads bind and give back parts of one pool: never two of them the same bytes.
#[test]
fn threads_share_a_pool() {
    let pool = pool(1024);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..if cfg!(miri) { 10 } else { 300 } {
                    let tensor = Tensor::unbound([64], DType::U8).unwrap();
                    if tensor.bind_in(pool, usize::from(thread / 2) * 64 + round % 64).is_ok() {
                        tensor.fill_(thread).unwrap();
                        assert_eq!(tensor.to_vec::<u8>().unwrap(), [thread; 64]);
                    }
                }
            });
        }
    });
    assert!(pool.write().is_ok());
}

/// Storages that are bound to parts of each other are released one after the other, not one inside the other.
#[test]
fn pools_in_pools_are_released_without_a_deep_stack() {
    let context = Context::new();
    let depth = if cfg!(miri) { 100 } else { 100_000 };
    let released = context.scope(|| {
        let (block, owner) = foreign(64);
        let mut last = Storage::from_block(block);
        for _ in 0..depth {
            let next = Storage::unbound(&TensorOptions::new()).unwrap();
            next.bind_part(&last, 0..64).unwrap();
            last = next;
        }
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(last);
        Arc::strong_count(&owner)
    });
    assert_eq!((released, context.stats(Device::CPU).live()), (1, 0));
}

/// A destructor that panics ends neither the loop that releases pools nor the pools behind it.
#[test]
fn a_hook_that_panics_while_a_pool_is_released_loses_no_other() {
    let (block, _) = foreign(64);
    let mut record = Record::new(block.as_ptr(), 64, Device::CPU, Access::Host);
    record.requested = 64;
    let (inner, bomb) = (
        pool(64),
        Deleter::from_closure(move |_| {
            drop(block);
            panic!("a deleter");
        }),
    );
    // SAFETY: the closure owns the memory.
    let outer = Storage::from_block(unsafe { Block::foreign(record, bomb) });
    let bound = |pool: &Storage| {
        let storage = Storage::unbound(&TensorOptions::new()).unwrap();
        storage.bind_part(pool, 0..64).unwrap();
        storage
    };
    let last = bound(&bound(&outer));
    drop(outer);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(last)));
    assert!(panics.is_err());
    let part = bound(&inner);
    assert!(inner.read().is_err());
    drop(bound(&part));
    drop(part);
    assert!(inner.read().is_ok());
}

/// The pool counts its parts: a part that was unbound is not counted again, whatever becomes of it.
#[test]
fn a_part_of_a_pool_is_counted_with_the_pool() {
    let context = Context::new();
    context.scope(|| {
        let live = || context.stats(Device::CPU).live();
        let whole = pool(1 << 16);
        let pooled = live();
        let tensor = Tensor::unbound([256], DType::F32).unwrap();
        tensor.bind_in(&whole, 1024).unwrap();
        let storage = tensor.storage().unwrap();
        let block = storage.unbind().unwrap();
        assert!(!block.is_uncounted() && live() == pooled);
        storage.bind_block(block).unwrap();
        assert_eq!(live(), pooled);
        let other = Storage::from_block(storage.unbind().unwrap());
        assert_eq!(live(), pooled);
        assert!(whole.slice(1024..2048).unwrap().read().is_err(), "it is still leased");
        let block = context.adopt(other.into_block().unwrap());
        assert_eq!(live(), pooled);
        drop(block);
        assert!(live() == pooled && whole.read().is_ok());
    });
}
