//! Memory that nothing can access, on any device: every operation on bytes is a typed error, and nothing is
//! accessed.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::mock_device::{FAR, with_device};
use orlop_alloc::backing::{Null, Pinned, System};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error as AllocError, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, Layout, MemoryFormat, MemoryKind, Shape};
use orlop_tensor::planned::{PlannedMemory, PlannedPart, PlannedTensor};
use orlop_tensor::{Error, Result, Storage, Tensor, TensorOptions};
use std::sync::Arc;

/// An operation on a tensor without accessible memory, and an ordinary one of the same sizes.
type Operation = fn(&Tensor, &Tensor) -> Result<()>;

const OPERATIONS: &[(&str, Operation)] = &[
    ("as_slice", |it, _| it.as_slice::<f32>().map(drop)),
    ("as_mut_slice", |it, _| it.as_mut_slice::<f32>().map(drop)),
    ("to_vec", |it, _| it.to_vec::<f32>().map(drop)),
    ("item", |it, _| it.select(0, 0)?.select(0, 0)?.item::<f32>().map(drop)),
    ("accessor", |it, _| it.accessor::<f32, 2>().map(drop)),
    ("accessor_mut", |it, _| it.accessor_mut::<f32, 2>().map(drop)),
    ("iter", |it, _| it.iter::<f32>().map(drop)),
    ("elements_mut", |it, _| it.elements_mut::<f32>().map(drop)),
    ("fill_", |it, _| it.fill_(1.0)),
    ("zero_", |it, _| it.zero_()),
    ("fill_ of a part", |it, _| it.slice(1, None, None, 2)?.fill_(1.0)),
    ("copy_ from", |it, other| other.copy_(it)),
    ("copy_ to", |it, other| it.copy_(other)),
    ("copy_ from with a cast", |it, other| other.to_dtype(DType::I64)?.copy_(it)),
    ("copy_ to with strides", |it, other| it.t()?.copy_(&other.t()?)),
    ("copy_ within", |it, _| it.narrow(0, 0, 1)?.copy_(&it.narrow(0, 1, 1)?)),
    ("duplicate", |it, _| it.duplicate().map(drop)),
    ("contiguous", |it, _| it.t()?.contiguous(MemoryFormat::Contiguous).map(drop)),
    ("reshape", |it, _| it.t()?.reshape([-1]).map(drop)),
    ("to_dtype", |it, _| it.to_dtype(DType::F64).map(drop)),
    ("to_device", |it, _| {
        let device = if it.device() == FAR { Device::CPU } else { FAR };
        it.to_device(device).map(drop)
    }),
    ("a write after a lazy clone", |it, _| {
        let clone = it.lazy_clone()?;
        clone.storage()?.write().map(drop)
    }),
    ("a fill after a lazy clone", |it, _| {
        let clone = it.lazy_clone()?;
        let result = clone.fill_(1.0);
        drop(clone);
        result
    }),
    ("a lazy clone of what was given out", |it, _| {
        it.storage()?.as_mut_ptr()?;
        it.lazy_clone().map(drop)
    }),
    ("growth", |it, _| it.storage()?.resize(1 << 16)),
    ("resize_", |it, _| it.clone().resize_([1000, 100])),
    ("storage read", |it, _| it.storage()?.read().map(drop)),
    ("storage write", |it, _| it.storage()?.write().map(drop)),
    #[cfg(feature = "npy")]
    ("npy", |it, _| orlop_tensor::interchange::npy::write_to(&mut Vec::new(), it)),
    #[cfg(feature = "safetensors")]
    ("safetensors", |it, _| {
        use orlop_tensor::interchange::safetensors::{Metadata, to_bytes};
        to_bytes([("it", it)], &Metadata::new()).map(drop)
    }),
    #[cfg(feature = "archive")]
    ("archive", |it, _| {
        orlop_tensor::interchange::archive::save_to(&mut std::io::Cursor::new(Vec::new()), [("it", it)])
            .map(drop)
    }),
    #[cfg(feature = "dlpack")]
    ("dlpack", |it, _| orlop_tensor::interchange::dlpack::export(it).map(drop)),
    #[cfg(feature = "dlpack")]
    ("dlpack to be written", |it, _| orlop_tensor::interchange::dlpack::export_mut(it).map(drop)),
    #[cfg(feature = "dlpack")]
    ("dlpack copied", |it, _| orlop_tensor::interchange::dlpack::export_copy(it).map(drop)),
    #[cfg(feature = "ndarray")]
    ("ndarray", |it, _| it.as_ndarray::<f32>().map(drop)),
    #[cfg(feature = "ndarray")]
    ("ndarray to be written", |it, _| it.as_mut_ndarray::<f32>().map(drop)),
    #[cfg(feature = "ndarray")]
    ("ndarray copied", |it, _| it.to_ndarray::<f32>().map(drop)),
];

/// Every operation on these tensors is refused, and has no effect.
fn operations_refused(make: impl Fn() -> Tensor) {
    let memory = |options: TensorOptions<'static>| Tensor::ones([4, 6], options).expect("memory");
    for other in [memory(TensorOptions::new()), memory(TensorOptions::new().device(FAR))] {
        for (name, operation) in OPERATIONS {
            let it = make();
            let result = operation(&it, &other);
            // Growth in place copies no bytes.
            if result.is_ok() && matches!(*name, "growth" | "resize_") {
                continue;
            }
            let typed = matches!(result, Err(Error::Alloc(AllocError::NotHostAccessible { .. })));
            assert!(typed, "{name} on {}: {result:?}", it.device());
            // A failed operation has no effect.
            assert_eq!((it.sizes(), it.storage().unwrap().nbytes()), (&[4, 6][..], 96), "{name}");
        }
    }
}

fn refused(allocator: &AllocatorRef) {
    let make = || Tensor::empty([4, 6], TensorOptions::new().allocator(allocator)).unwrap();
    operations_refused(make);
    let it = make();
    assert!(it.to_string().contains("unreadable"), "{it}");
    assert!(!format!("{it:?} {}", it.diagnose()).is_empty());
    // Operations without bytes succeed.
    let storage = it.storage().unwrap();
    storage.resize(96).unwrap();
    storage.resize(0).unwrap();
    storage.resize(1000).unwrap();
    storage.clear().unwrap();
    // Created from data, which is on the host first.
    let made = Tensor::from_slice_in([2], &[1.0f32, 2.0], TensorOptions::new().allocator(allocator));
    assert!(matches!(made, Err(Error::Alloc(AllocError::NotHostAccessible { .. }))), "{made:?}");
    let made = Tensor::arange(0.0, 3.0, 1.0, TensorOptions::from(DType::F32).allocator(allocator));
    assert!(matches!(made, Err(Error::Alloc(AllocError::NotHostAccessible { .. }))), "{made:?}");
}

#[test]
fn address_space_is_never_touched() {
    with_device(|_| {
        for device in [Device::CPU, FAR] {
            refused(&Direct::new(Null::new(device)).into_ref().erase());
            refused(&Caching::new(Null::new(device)).into_ref().erase());
        }
        // A backing that pins memory does not report its accessibility.
        refused(&Direct::new(Pinned::new(Arc::new(Null::new(Device::CPU)))).into_ref().erase());
    });
}

/// Returns host memory that a device may still write.
fn unfinished(bytes: usize) -> Block {
    let memory = Direct::new(System::new()).into_ref().allocate(&Request::new(bytes)).unwrap().share();
    memory.record_unfinished();
    memory.try_into_block().unwrap()
}

#[test]
#[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
fn memory_that_a_device_may_still_write_is_never_touched() {
    with_device(|_| {
        let layout = || Layout::contiguous(Shape::new(&[4, 6]).unwrap());
        operations_refused(|| {
            Tensor::from_storage(Storage::from_block(unfinished(96)), layout(), DType::F32).unwrap()
        });
        operations_refused(|| {
            let bound = Tensor::unbound([4, 6], DType::F32).unwrap();
            bound.storage().unwrap().bind_block(unfinished(96)).unwrap();
            bound
        });
        // Parts know it from the whole.
        let part = PlannedPart::new(0, 96, [PlannedTensor::new(layout(), DType::F32, 0..2)]);
        let mut planned = PlannedMemory::new(unfinished(96), std::slice::from_ref(&part)).unwrap();
        let read = planned.tensor(0).unwrap().to_vec::<f32>();
        assert!(matches!(read, Err(Error::Alloc(AllocError::NotHostAccessible { .. }))), "{read:?}");
        assert!(planned.sanitize(true).is_err());
        let pool = Storage::from_block(unfinished(96));
        let bound = Tensor::unbound([4], DType::F32).unwrap();
        let result = bound.bind_in(&pool, 0);
        assert!(matches!(result, Err(Error::Alloc(AllocError::NotHostAccessible { .. }))), "{result:?}");
        // The memory of a whole leaks with a part.
        let allocator = Direct::new(System::new()).into_ref();
        let whole = allocator.allocate(&Request::new(96)).unwrap();
        let memory = PlannedMemory::new(whole, &[part]).unwrap();
        let tensor = memory.tensor(0).unwrap();
        tensor.fill_(1.0).unwrap();
        tensor.storage().unwrap().block().unwrap().record_unfinished();
        assert!(tensor.as_slice::<f32>().is_err());
        drop(memory);
        assert_eq!(allocator.stats().live(), 96);
    });
}

/// Registered as the CPU's allocator.
#[test]
fn a_context_of_address_space() {
    let context = Context::new();
    context
        .register(Device::CPU, MemoryKind::Default, Direct::new(Null::new(Device::CPU)).into_ref())
        .unwrap();
    context.scope(|| {
        let storage = Storage::new(64, &TensorOptions::new()).unwrap();
        let clone = storage.lazy_clone().unwrap();
        for result in [clone.write().map(drop), storage.resize(4096), storage.read().map(drop)] {
            assert!(matches!(result, Err(Error::Alloc(AllocError::NotHostAccessible { .. }))), "{result:?}");
        }
        assert_eq!((storage.nbytes(), clone.nbytes()), (64, 64));
    });
}
