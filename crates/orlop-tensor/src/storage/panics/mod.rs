//! User code that panics during every change of a storage. The storage must then be in its old or its new
//! state, and stay usable.
//!
//! A backing, an observer, a storage hook, a device's operations or the owner of foreign memory panics: at
//! its first call, at its second, and so on until the operation completes without a panic.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

mod worlds;

use self::worlds::{BYTES, FAR, FUSE, MARK, Panicking, World, call, full, tensor};
use super::Storage;
use super::cow::copy_of;
use crate::{Result, Tensor, TensorOptions};
use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{
    Allocator, AllocatorRef,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind, StreamId};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Runs an operation with a panic at each call of user code. It gets two storages, and the first one is
/// checked afterwards.
fn panics_everywhere(name: &str, operation: impl Fn(&TensorOptions<'_>, &Storage, &Storage) -> Result<()>) {
    for &world in World::ALL {
        world.inside(|options| {
            let mut at = 1;
            loop {
                let (storage, other) = (full(options), full(options));
                FUSE.set(at);
                let result = catch_unwind(AssertUnwindSafe(|| operation(options, &storage, &other)));
                let is_through = FUSE.replace(0) > 0;
                // A backing or an observer may have caught the panic: the operation then failed or succeeded.
                let succeeded = matches!(result, Ok(Ok(())));
                assert!(succeeded || !is_through, "{name}, {world:?}, {at}: {result:?}");
                check(&storage, &format!("{name}, {world:?}, {at}"));
                check(&other, &format!("{name}, {world:?}, {at}"));
                if is_through {
                    break;
                }
                // Miri skips more and more of the late calls.
                at += if cfg!(miri) { 1 + at } else { 1 };
            }
        });
    }
}

/// Checks that a storage is consistent: not larger than its block, with its pattern, and usable.
fn check(storage: &Storage, name: &str) {
    let mut marked = storage.nbytes().min(BYTES);
    let sizes = [storage.nbytes(), 5 * BYTES, 0, BYTES];
    for &bytes in &sizes[..if cfg!(miri) { 2 } else { 4 }] {
        storage.resize(bytes).unwrap();
        let block = storage.block().unwrap();
        assert!(storage.nbytes() <= block.requested && block.requested <= block.granted, "{name}");
        let elements = tensor(storage).to_vec::<u8>().unwrap();
        marked = marked.min(elements.len());
        assert!(elements[..marked].iter().all(|&byte| byte == MARK), "{name}: {elements:?}");
        tensor(storage).fill_(MARK).unwrap();
    }
}

#[test]
fn growing_and_shrinking() {
    let sizes: &[usize] = if cfg!(miri) { &[0, 10 * BYTES] } else { &[0, 1, BYTES + 1, 10 * BYTES] };
    for &bytes in sizes {
        panics_everywhere("resize", |_, storage, _| storage.resize(bytes));
    }
    panics_everywhere("to nothing and back", |options, _, _| {
        let storage = Storage::new(BYTES, options)?;
        let there_and_back = || storage.resize(0).and_then(|()| storage.resize(10));
        let result = catch_unwind(AssertUnwindSafe(there_and_back));
        assert!(storage.nbytes() <= storage.block()?.requested);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    });
}

#[test]
fn clearing_and_swapping() {
    panics_everywhere("clear", |_, storage, _| storage.clear());
    panics_everywhere("swap", |_, storage, other| {
        other.resize(2 * BYTES)?;
        tensor(other).fill_(MARK)?;
        storage.swap_data(other)
    });
}

#[test]
fn binding_late() {
    panics_everywhere("bind", |options, _, _| {
        let storage = Storage::unbound(options)?;
        let bound = catch_unwind(AssertUnwindSafe(|| storage.bind(BYTES)));
        let failed = !matches!(bound, Ok(Ok(())));
        assert_eq!(storage.is_unbound(), failed);
        if failed {
            storage.bind(BYTES)?;
        }
        tensor(&storage).fill_(MARK)?;
        let left = FUSE.replace(0);
        check(&storage, "bind");
        FUSE.set(left);
        bound.unwrap_or_else(|panic| resume_unwind(panic))
    });
}

#[test]
fn copies_that_were_put_off() {
    panics_everywhere("a writer copies", |_, storage, _| {
        let clone = storage.lazy_clone()?;
        tensor(&clone).fill_(1u8)?;
        check_is(&clone, 1);
        drop(clone);
        tensor(storage).fill_(MARK)
    });
    panics_everywhere("the other owner goes meanwhile", |_, storage, _| {
        let clone = storage.lazy_clone()?;
        let mut clone = Some(clone);
        let guard = storage.cell().write_by(0..usize::MAX, |block, bytes| {
            clone = None;
            copy_of(block, bytes)
        })?;
        assert!(guard.block().is_unique());
        Ok(())
    });
    panics_everywhere("a real copy", |_, storage, _| {
        storage.as_mut_ptr()?;
        let clone = storage.lazy_clone()?;
        check_is(&clone, MARK);
        Ok(())
    });
}

fn check_is(storage: &Storage, mark: u8) {
    assert_eq!(tensor(storage).to_vec::<u8>().unwrap(), [mark; BYTES]);
}

#[test]
fn giving_away_and_dropping() {
    panics_everywhere("into_block", |options, _, _| {
        let storage = Storage::new(BYTES, options)?;
        drop(storage.into_block().map_err(|_| crate::Error::Undefined)?);
        Ok(())
    });
    panics_everywhere("drop", |options, _, _| {
        let mut tensor = Tensor::empty([10], *options)?;
        let view = tensor.view([2, 5])?;
        tensor.resize_([2, 1000])?;
        drop(tensor);
        drop(view);
        Ok(())
    });
}

#[test]
fn copying_and_filling() {
    panics_everywhere("copies", |options, storage, other| {
        let source = tensor(other);
        tensor(storage).copy_(&source)?;
        let duplicate = source.duplicate()?;
        duplicate.to_device(Device::CPU)?.to_device(duplicate.device())?;
        let wide = source.to_dtype(DType::I32)?;
        tensor(storage).copy_(&wide)?;
        let strided = Tensor::empty_strided([2, 3], &[8, 2], options.dtype(DType::U8))?;
        strided.fill_(3)?;
        tensor(storage).narrow(0, 0, 2)?.fill_(MARK)
    });
}

/// The owner of foreign memory panics when it is dropped.
#[test]
fn owners_that_panic() {
    struct Owner(Vec<u8>);

    impl Drop for Owner {
        fn drop(&mut self) {
            call();
        }
    }

    type Operation = fn(Storage) -> Result<()>;
    let operations: [Operation; 4] = [
        |storage| storage.clear(),
        |storage| {
            drop(storage);
            Ok(())
        },
        |storage| {
            let other = Storage::new(10, &TensorOptions::new())?;
            storage.swap_data(&other)?;
            drop(other);
            storage.resize(3 * BYTES)
        },
        |storage| {
            drop(storage.into_block());
            Ok(())
        },
    ];
    for operation in operations {
        let mut owner = Owner(vec![MARK; BYTES]);
        let ptr = NonNull::from(owner.0.as_mut_slice()).cast();
        // SAFETY: the vector's elements do not move when their owner does, and nothing else uses them.
        let storage = unsafe { Storage::foreign(ptr, BYTES, MemoryKind::Default, owner) };
        let again = storage.clone();
        drop(again);
        FUSE.set(1);
        let kept = storage.lazy_clone().unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| operation(storage)));
        assert!(result.is_err() && FUSE.replace(0) == 0);
        check_is(&kept, MARK);
    }
}

/// If waiting for a device fails, it may still be writing: the memory is not reused.
#[test]
fn memory_that_a_device_may_use_is_kept() {
    const LOST: Device = Device::custom(97, 0);

    #[derive(Debug)]
    struct Lost;

    // SAFETY: it accesses nothing.
    unsafe impl DeviceOps for Lost {
        fn device(&self) -> Device {
            LOST
        }

        unsafe fn copy(&self, _: DevicePtr, _: DevicePtr, _: usize, _: StreamId) -> orlop_alloc::Result<()> {
            Ok(())
        }

        unsafe fn fill(&self, _: DevicePtr, _: &[u8], _: usize, _: StreamId) -> orlop_alloc::Result<()> {
            Ok(())
        }

        fn synchronize(&self, _: StreamId) -> orlop_alloc::Result<()> {
            Err(orlop_alloc::Error::NoDeviceOps { device: FAR })
        }
    }

    static ALLOCATOR: OnceLock<AllocatorRef> = OnceLock::new();
    let device = LOST;
    let allocator =
        ALLOCATOR.get_or_init(|| Direct::new(Panicking(System::new(), device)).into_ref().erase());
    let context = Context::new();
    context.register(device, MemoryKind::Default, allocator.clone()).unwrap();
    context.register_ops(device, Arc::new(Lost)).unwrap();
    context.scope(|| {
        let lost = Tensor::empty([10], TensorOptions::new().device(device)).unwrap();
        assert!(lost.fill_(1).is_err());
        let [source, destination] = [1, 2].map(|value| Tensor::full([10], value, DType::F32).unwrap());
        assert!(lost.copy_(&source).is_err());
        assert_eq!(source.to_vec::<f32>().unwrap(), [1.0; 10], "it is only read");
        assert!(destination.copy_(&lost).is_err());
        let read = destination.to_vec::<f32>();
        let refused = crate::Error::Alloc(orlop_alloc::Error::NotHostAccessible { device: Device::CPU });
        assert_eq!(read.unwrap_err().to_string(), refused.to_string(), "it may change");
        drop(lost);
    });
    assert_eq!(allocator.stats().totals.all.live_blocks(), 1);
}
