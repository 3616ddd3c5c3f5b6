//! Creation of tensors.

use orlop_alloc::Tag;
use orlop_context::Context;
use orlop_core::{Alignment, Complex, DType, Device, MemoryFormat, MemoryKind, dispatch};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};

#[test]
fn the_one_path_keeps_what_was_asked_for() {
    let context = Context::new();
    let options = TensorOptions::from(DType::BF16)
        .kind(MemoryKind::KvCache)
        .align(Alignment::new(4096).unwrap())
        .tag(Tag::new("keys"))
        .context(&context);
    let tensor = Tensor::empty([3, 5], options).unwrap();
    let block = tensor.storage().unwrap().block().unwrap();
    assert_eq!((block.kind, block.tag, block.align.bytes()), (MemoryKind::KvCache, Tag::new("keys"), 4096));
    assert_eq!((block.address() % 4096, tensor.nbytes(), tensor.memory_kind()), (0, 30, MemoryKind::KvCache));
    assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, block.granted as u64);
    drop((tensor, block));
    assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, 0);
}

#[test]
fn impossible_shapes_are_typed_errors() {
    let layout = |result: Result<Tensor, Error>| matches!(result, Err(Error::Layout(_)));
    assert!(layout(Tensor::empty([2, -1], DType::F32)));
    assert!(layout(Tensor::empty([i64::MAX], DType::F64)));
    assert!(layout(Tensor::empty([1i64 << 40, 1 << 40], DType::U8)));
    let flat = TensorOptions::new().memory_format(MemoryFormat::ChannelsLast);
    assert!(layout(Tensor::empty([2, 3], flat)));
    let none = Tensor::empty([0i64, 1 << 40], DType::F32).unwrap();
    assert_eq!((none.nbytes(), none.device()), (0, Device::CPU));
    let pinned = TensorOptions::new().kind(MemoryKind::HostPinned).device(Device::cuda(0));
    assert!(matches!(Tensor::empty([1], pinned), Err(Error::Alloc(_))));
    assert!(matches!(Tensor::empty([1], TensorOptions::new().device(Device::cuda(3))), Err(Error::Alloc(_))));
}

#[test]
fn values() {
    assert_eq!(
        Tensor::ones([2, 2], DType::F16).unwrap().to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap(),
        [1.0; 4]
    );
    assert_eq!(Tensor::zeros([3], DType::I64).unwrap().to_vec::<i64>().unwrap(), [0; 3]);
    assert_eq!(Tensor::full([2], true, DType::Bool).unwrap().to_vec::<bool>().unwrap(), [true; 2]);
    let complex = Complex::new(1.0f32, -2.0);
    assert_eq!(
        Tensor::full([2], complex, DType::C64).unwrap().to_vec::<Complex<f32>>().unwrap(),
        [complex; 2]
    );
    assert_eq!(Tensor::arange(5.0, 0.0, -2.0, DType::F32).unwrap().to_vec::<f32>().unwrap(), [5.0, 3.0, 1.0]);
    assert_eq!(Tensor::eye(2, 3, DType::U8).unwrap().to_vec::<u8>().unwrap(), [1, 0, 0, 0, 1, 0]);
    assert!(matches!(Tensor::arange(0.0, 1.0, 0.0, DType::F32), Err(Error::EmptyRange { .. })));
    assert!(matches!(Tensor::arange(0.0, 1.0, -1.0, DType::F32), Err(Error::EmptyRange { .. })));
    assert!(matches!(Tensor::arange(0.0, f64::INFINITY, 1.0, DType::F32), Err(Error::EmptyRange { .. })));
    assert!(Tensor::arange(0.0, 4.0, 1.0, DType::C64).is_err());
}

#[test]
fn every_dtype_is_filled_and_read() {
    for dtype in DType::ALL {
        let tensor = Tensor::full([4, 3], 1, dtype).unwrap();
        dispatch!(dtype, T => {
            let one = orlop_core::cast::<i32, T>(1);
            assert_eq!(tensor.to_vec::<T>().unwrap(), [one; 12]);
            let part = tensor.slice(1, None, None, 2).unwrap();
            part.zero_().unwrap();
            let row = tensor.select(0, 3).unwrap().to_vec::<T>().unwrap();
            assert_eq!(row, [T::default(), one, T::default()]);
        });
    }
}

#[test]
fn formats_and_strides() {
    let options = TensorOptions::new().memory_format(MemoryFormat::ChannelsLast);
    let image = Tensor::zeros([2, 3, 4, 5], options).unwrap();
    assert!(image.is_contiguous_in(MemoryFormat::ChannelsLast) && !image.is_contiguous());
    assert_eq!(image.empty_like().unwrap().strides(), image.strides());
    let plain = image.contiguous(MemoryFormat::Contiguous).unwrap();
    assert!(plain.is_contiguous() && !plain.is_alias_of(&image));
    assert!(image.contiguous(MemoryFormat::ChannelsLast).unwrap().is_same(&image));
    let strided = Tensor::empty_strided([2, 3], &[10, 2], DType::U8).unwrap();
    assert_eq!((strided.storage().unwrap().nbytes(), strided.strides().as_slice()), (15, &[10, 2][..]));
    assert_eq!(Tensor::full([2, 3, 1, 1], 3, options).unwrap().to_vec::<f32>().unwrap(), [3.0; 6]);
    let counted = Tensor::arange(0.0, 24.0, 1.0, DType::F32).unwrap().view([1, 2, 3, 4]).unwrap();
    let last = counted.contiguous(MemoryFormat::ChannelsLast).unwrap();
    assert_eq!(last.to_vec::<f32>().unwrap(), counted.to_vec::<f32>().unwrap());
}

#[test]
fn from_what_programs_have() {
    let nested = Tensor::from_nested(&[[[1i64, 2], [3, 4]], [[5, 6], [7, 8]]]).unwrap();
    assert_eq!((nested.sizes(), nested.dtype()), (&[2, 2, 2][..], DType::I64));
    assert_eq!(Tensor::from_nested(&3.5f64).unwrap().item::<f64>().unwrap(), 3.5);
    let empty: [[f32; 0]; 2] = [[], []];
    assert_eq!(Tensor::from_nested(&empty).unwrap().sizes(), [2, 0]);
    assert!(matches!(
        Tensor::from_nested(&vec![vec![1u8], vec![]]),
        Err(Error::Ragged { first: 1, other: 0 })
    ));
    assert!(matches!(
        Tensor::from_nested(&vec![vec![], vec![1u8]]),
        Err(Error::Ragged { first: 0, other: 1 })
    ));
    assert!(matches!(
        Tensor::from_vec([2, 2], vec![1f32]),
        Err(Error::CountMismatch { expected: 4, actual: 1 })
    ));
    let moved = Tensor::from_vec([2], vec![1f64, 2.0]).unwrap();
    moved.fill_(4.0).unwrap();
    assert_eq!(moved.to_vec::<f64>().unwrap(), [4.0, 4.0]);
    assert!(!moved.storage().unwrap().is_resizable());
    let strided = TensorOptions::new().memory_format(MemoryFormat::ChannelsLast);
    let image = Tensor::from_slice_in([1, 2, 1, 2], &[1u8, 2, 3, 4], strided).unwrap();
    assert_eq!(
        (image.strides().as_slice(), image.to_vec::<u8>().unwrap()),
        (&[4, 1, 4, 2][..], vec![1, 2, 3, 4])
    );
}

#[test]
fn bound_into_a_pool() {
    let pool = Storage::new(1024, &TensorOptions::new()).unwrap();
    let tensor = Tensor::bind(&pool, 64, [10], DType::F64).unwrap();
    tensor.fill_(2.0).unwrap();
    assert_eq!(pool.read().unwrap()[64..72], 2.0f64.to_ne_bytes());
    assert!(matches!(Tensor::bind(&pool, 4, [10], DType::F64), Err(Error::Misaligned { align: 8, .. })));
    assert!(matches!(Tensor::bind(&pool, 1000, [10], DType::F64), Err(Error::Layout(_))));
    assert!(Tensor::bind(&pool, usize::MAX, [10], DType::F64).is_err());
    let view = tensor.narrow(0, 5, 5).unwrap();
    drop((pool, tensor));
    assert_eq!(view.to_vec::<f64>().unwrap(), [2.0; 5]);
}

#[test]
fn undefined_tensors_answer_and_refuse() {
    let nothing = Tensor::undefined();
    assert_eq!((nothing.ndim(), nothing.numel(), nothing.use_count()), (1, 0, 0));
    assert!(matches!(nothing.view([0]), Err(Error::Undefined)));
    assert!(matches!(nothing.copy_(&nothing), Err(Error::Undefined)));
    assert!(matches!(nothing.lazy_clone(), Err(Error::Undefined)));
    assert!(nothing.is_same(&Tensor::default()) && !nothing.is_alias_of(&Tensor::default()));
}
