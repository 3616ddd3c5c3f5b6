//! Tensors on a device that the crate does not know.

use crate::mock_device::{FAR, with_device};
use orlop_alloc::Allocator;
use orlop_alloc::Error as AllocError;
use orlop_alloc::engine::Direct;
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind};
use orlop_tensor::{Error, Tensor, TensorOptions};
use orlop_testkit::fake_device::FakeDeviceBacking;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn there_and_back() {
    with_device(|ops| {
        let here = Tensor::arange(0.0, 12.0, 1.0, DType::F32).unwrap().view([3, 4]).unwrap();
        let there = here.to_device(FAR).unwrap();
        assert_eq!((there.device(), ops.0.load(Ordering::Relaxed)), (FAR, 1), "one copy of one run");
        assert!(matches!(there.as_slice::<f32>(), Err(Error::Alloc(AllocError::NotHostAccessible { .. }))));
        assert_eq!(there.to_vec::<f32>().unwrap(), here.to_vec::<f32>().unwrap());
        assert_eq!(there.t().unwrap().to_vec::<f32>().unwrap(), here.t().unwrap().to_vec::<f32>().unwrap());
        assert!(there.to_device(FAR).unwrap().is_same(&there));
        let address = there.storage().unwrap().block().unwrap().address();
        assert_eq!(address % Alignment::PLANNED.bytes(), 0);
    });
}

#[test]
fn strides_and_casts_go_through_the_host() {
    with_device(|_| {
        let there = Tensor::zeros([4, 4], TensorOptions::from(DType::I32).device(FAR)).unwrap();
        there
            .slice(1, Some(1), None, 2)
            .unwrap()
            .copy_(&Tensor::from_slice(&[1.5f64, 2.5]).unwrap())
            .unwrap();
        there.select(0, 2).unwrap().fill_(9).unwrap();
        there.select(1, 0).unwrap().fill_(7).unwrap();
        assert_eq!(there.to_vec::<i32>().unwrap(), [7, 1, 0, 2, 7, 1, 0, 2, 7, 9, 9, 9, 7, 1, 0, 2]);
        let halves = there.to_dtype(DType::F16).unwrap();
        assert_eq!((halves.device(), halves.dtype()), (FAR, DType::F16));
        let transposed = there.t().unwrap().contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(transposed.to_vec::<i32>().unwrap()[..4], [7; 4]);
        assert_eq!(
            Tensor::eye(2, 2, TensorOptions::from(DType::U8).device(FAR)).unwrap().to_vec::<u8>().unwrap(),
            [1, 0, 0, 1]
        );
        assert_eq!(
            Tensor::arange(0.0, 3.0, 1.0, TensorOptions::from(DType::I64).device(FAR))
                .unwrap()
                .to_vec::<i64>()
                .unwrap(),
            [0, 1, 2]
        );
    });
}

#[test]
fn lazy_copies_and_resizing_there() {
    with_device(|_| {
        let first = Tensor::full([8], 3, TensorOptions::from(DType::I32).device(FAR)).unwrap();
        let second = first.lazy_clone().unwrap();
        second.fill_(4).unwrap();
        assert_eq!(
            (first.to_vec::<i32>().unwrap(), second.to_vec::<i32>().unwrap()),
            (vec![3; 8], vec![4; 8])
        );
        let mut third = second.clone();
        third.resize_([100]).unwrap();
        assert_eq!(third.narrow(0, 0, 8).unwrap().to_vec::<i32>().unwrap(), [4; 8]);
    });
}

#[test]
fn a_device_without_operations_is_a_typed_error() {
    let context = Context::new();
    context.register(FAR, MemoryKind::Default, Direct::new(FakeDeviceBacking::new()).into_ref()).unwrap();
    let tensor = Tensor::empty([4], TensorOptions::new().device(FAR).context(&context)).unwrap();
    assert!(matches!(context.scope(|| tensor.fill_(1.0)), Err(Error::Alloc(AllocError::NoDeviceOps { .. }))));
}

/// A backend that allocates the memory of its storages itself.
#[derive(Debug)]
struct CountingHook(AtomicUsize);

impl orlop_tensor::StorageHook for CountingHook {
    fn allocate(
        &self,
        context: &Context,
        device: Device,
        request: &orlop_alloc::Request,
    ) -> orlop_alloc::Result<orlop_alloc::Block> {
        self.0.fetch_add(1, Ordering::Relaxed);
        context.allocate(device, request)
    }
}

#[test]
fn a_backend_makes_its_own_storages() {
    // A device type of its own: hooks are global to the process.
    let device = Device::custom(77, 0);
    let hook = Arc::new(CountingHook(AtomicUsize::new(0)));
    assert!(orlop_tensor::set_storage_hook(device.device_type(), Arc::clone(&hook) as _).is_none());
    let refused = Tensor::empty([4], TensorOptions::new().device(device));
    assert!(matches!(refused, Err(Error::Alloc(AllocError::NoAllocator { .. }))));
    assert!(Tensor::empty([4], DType::F32).is_ok());
    assert_eq!(hook.0.load(Ordering::Relaxed), 1);
    assert!(orlop_tensor::clear_storage_hook(device.device_type()).is_some());
    assert!(Tensor::empty([4], TensorOptions::new().device(device)).is_err());
    assert_eq!(hook.0.load(Ordering::Relaxed), 1);
}
