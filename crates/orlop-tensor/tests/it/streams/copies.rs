//! Copies, fills and casts on the device, and to and from the host.

use super::{FAR, far, numbers, vec_of, with_device};
use orlop_alloc::Error as AllocError;
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryFormat, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
use orlop_testkit::QueuedDevice;

#[test]
fn a_copy_to_another_device_keeps_dtype_and_format() {
    with_device(|device, _| {
        let image = Tensor::arange(0.0, 120.0, 1.0, DType::I16).unwrap().view([2, 3, 4, 5]).unwrap();
        let last = image.contiguous(MemoryFormat::ChannelsLast).unwrap();
        let permuted = image.permute([3, 1, 0, 2]).unwrap();
        let part = image.slice(3, Some(1), None, 2).unwrap();
        for tensor in [&image, &last, &permuted, &part] {
            let before = device.calls();
            let there = tensor.to_device(FAR).unwrap();
            let expected = tensor.empty_like().unwrap();
            assert_eq!((there.dtype(), there.strides()), (DType::I16, expected.strides()));
            assert_eq!(device.calls().copies, before.copies + 1, "one run");
            let back = there.to_device(Device::CPU).unwrap();
            assert_eq!((back.dtype(), back.strides()), (DType::I16, expected.strides()));
            assert_eq!(back.to_vec::<i16>().unwrap(), tensor.to_vec::<i16>().unwrap());
        }
        let there = last.to_device(FAR).unwrap();
        assert_eq!(there.duplicate().unwrap().strides(), last.strides());
        let rows = there.contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(rows.strides(), image.strides());
        assert_eq!(rows.to_vec::<i16>().unwrap(), image.to_vec::<i16>().unwrap());
    });
}

#[test]
fn strided_tensors_are_copied_and_filled_there() {
    with_device(|device, _| {
        let here = numbers(48).view([6, 8]).unwrap();
        let there = here.to_device(FAR).unwrap();
        let (columns, rows) =
            (there.slice(1, Some(1), None, 3).unwrap(), there.slice(0, None, None, 2).unwrap());
        let before = device.calls();
        let copy = columns.duplicate().unwrap();
        assert_eq!(device.calls().strided_copies, before.strided_copies + 1);
        rows.fill_(-1).unwrap();
        let assigned = Tensor::zeros([8, 6], far(DType::I32)).unwrap();
        assigned.t().unwrap().copy_(&there).unwrap();
        assert_eq!(device.calls().synchronizations, before.synchronizations, "nothing waits");
        let expected = here.slice(1, Some(1), None, 3).unwrap();
        assert_eq!(vec_of(&copy), vec_of(&expected));
        here.slice(0, None, None, 2).unwrap().fill_(-1).unwrap();
        assert_eq!(vec_of(&there), vec_of(&here));
        assert_eq!(vec_of(&assigned), vec_of(&here.t().unwrap()));
        // To and from the host: packed on the device, one run.
        let before = device.calls();
        assert_eq!(vec_of(&columns), vec_of(&here.slice(1, Some(1), None, 3).unwrap()));
        assert_eq!(device.calls().copies, before.copies + 1);
        assert_eq!(device.calls().strided_copies, before.strided_copies + 1);
        let ones = Tensor::full([6, 3], 1, DType::I32).unwrap();
        columns.copy_(&ones).unwrap();
        assert_eq!(device.calls().copies, before.copies + 2);
        here.slice(1, Some(1), None, 3).unwrap().copy_(&ones).unwrap();
        assert_eq!(vec_of(&there), vec_of(&here));
        // Repeated elements travel once.
        let wide = numbers(4).to_device(FAR).unwrap().unsqueeze(0).unwrap().expand([1000, 4]).unwrap();
        assert_eq!(vec_of(&wide), [0, 1, 2, 3].repeat(1000));
    });
}

#[test]
fn casts_on_the_device_or_on_the_host() {
    for casts in [false, true] {
        with_device(|device, _| {
            if casts {
                device.enable_casts();
            }
            let here = Tensor::arange(-3.0, 5.0, 0.5, DType::F32).unwrap().view([4, 4]).unwrap().t().unwrap();
            let there = here.to_device(FAR).unwrap();
            let whole = there.to_dtype(DType::I32).unwrap();
            assert_eq!((whole.device(), whole.strides()), (FAR, here.strides()));
            assert_eq!(device.calls().casts, usize::from(casts));
            assert_eq!(device.calls().synchronizations == 0, casts, "a cast on the host reads the elements");
            assert_eq!(vec_of(&whole), vec_of(&here.to_dtype(DType::I32).unwrap()));
            let sent = here.to(far(DType::F16)).unwrap();
            assert_eq!((sent.device(), sent.dtype(), sent.strides()), (FAR, DType::F16, here.strides()));
            let back = sent.to(TensorOptions::new().dtype(DType::F64).device(Device::CPU)).unwrap();
            assert_eq!(
                back.to_vec::<f64>().unwrap(),
                here.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
            );
        });
    }
}

#[test]
fn a_failed_operation_is_an_error_and_loses_nothing() {
    with_device(|device, context| {
        let there = numbers(100).to_device(FAR).unwrap();
        let live = |context: &Context| context.allocator(FAR, MemoryKind::Default).unwrap().stats().live();
        let before = live(context);
        let strided = there.slice(0, None, None, 3).unwrap();
        let host = Tensor::zeros([34], DType::I32).unwrap();
        let operations: [&dyn Fn() -> orlop_tensor::Result<()>; 6] = [
            &|| there.fill_(1),
            &|| strided.fill_(1),
            &|| there.duplicate().map(drop),
            &|| strided.copy_(&host),
            &|| host.copy_(&strided),
            &|| strided.contiguous(MemoryFormat::Contiguous).map(drop),
        ];
        for operation in operations {
            device.fail_next();
            let failed = operation();
            assert!(matches!(failed, Err(Error::Alloc(AllocError::Backend(_)))), "{failed:?}");
            assert_eq!(live(context), before);
        }
        assert_eq!(vec_of(&there), (0..100).collect::<Vec<_>>());
    });
}

/// Strided memory can be read and written when the device has no room for packed elements.
#[test]
fn a_full_device_is_read_and_written() {
    let device = QueuedDevice::new(FAR, 4 << 20);
    device.context().unwrap().scope(|| {
        let there = Storage::new((4 << 20) - 512, &far(DType::U8)).unwrap();
        let there = Tensor::from_storage(
            there,
            orlop_core::Layout::contiguous(orlop_core::Shape::new(&[1 << 10, 1 << 10]).unwrap()),
            DType::U16,
        );
        let there = there.unwrap();
        there.fill_(1u8).unwrap();
        let column = there.slice(1, None, Some(1), 1).unwrap();
        assert!(Tensor::empty([1 << 20], far(DType::I32)).is_err());
        let here = Tensor::arange(0.0, 1024.0, 1.0, DType::U16).unwrap().unsqueeze(1).unwrap();
        column.copy_(&here).unwrap();
        assert_eq!(column.to_vec::<u16>().unwrap(), here.to_vec::<u16>().unwrap());
        assert_eq!(there.select(1, 1).unwrap().to_vec::<u16>().unwrap(), [1; 1024]);
    });
}
