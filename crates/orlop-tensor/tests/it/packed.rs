//! Packed accessors, as kernels compute with them.

use orlop_core::{DType, Layout, Shape, Strides};
use orlop_tensor::{Error, PackedAccessor, Storage, Tensor, TensorOptions};
use orlop_testkit::fake_device::FakeDeviceBacking;

/// A view of one byte of storage: expanded, so that its sizes and strides are anything.
fn view(sizes: &[usize], strides: &[usize]) -> Tensor {
    let storage = Storage::new(1, &TensorOptions::new()).expect("a byte");
    let (sizes, strides) =
        (Shape::new(sizes).expect("no overflow"), Strides::new(strides).expect("no overflow"));
    let layout = Layout::new(sizes, strides, 0).expect("as many strides as sizes");
    Tensor::from_storage(storage, layout, DType::U8).expect("as long as the storage")
}

#[test]
fn every_element_is_where_its_index_says() {
    let all = Tensor::arange(0.0, 120.0, 1.0, DType::F32).unwrap().view([2, 3, 4, 5]).unwrap();
    let part = all.permute([2, 0, 3, 1]).unwrap().slice(2, Some(1), None, 2).unwrap();
    let (narrow, wide) =
        (part.packed_accessor::<f32, 4, i32>().unwrap(), part.packed_accessor::<f32, 4, i64>().unwrap());
    assert_eq!((narrow.sizes, narrow.strides), ([4, 2, 2, 3], [5, 60, 2, 20]));
    let elements = part.accessor::<f32, 4>().unwrap();
    for (a, b, c, d) in (0..96).map(|i| (i / 24, i / 12 % 2, i / 6 % 2, i % 3)) {
        let index = [a % 4, b, c, d];
        let address = narrow.address_of(index).unwrap();
        assert_eq!(
            (address, address),
            (wide.address_of(index).unwrap(), (&raw const elements[index]).addr() as u64)
        );
    }
    assert!(narrow.address_of([4, 0, 0, 0]).is_none() && wide.address_of([0, 0, 2, 0]).is_none());
}

#[test]
fn a_kernel_argument_is_its_bytes() {
    let tensor = Tensor::zeros([2, 3], DType::F32).unwrap().t().unwrap();
    let address = tensor.storage().unwrap().block().unwrap().address() as u64;
    let narrow = tensor.packed_accessor::<f32, 2, i32>().unwrap();
    let bytes = bytemuck::bytes_of(&narrow);
    assert_eq!(bytes[..8], address.to_ne_bytes());
    let indices: Vec<i32> = bytemuck::cast_slice(&bytes[8..]).to_vec();
    assert_eq!(indices, [3, 2, 1, 3]);
    assert_eq!(*bytemuck::from_bytes::<PackedAccessor<f32, 2, i32>>(bytes), narrow);
    let wide: PackedAccessor<f32, 2, i64> = tensor.packed_accessor().unwrap();
    let indices: Vec<i64> = bytemuck::cast_slice(&bytemuck::bytes_of(&wide)[8..]).to_vec();
    assert_eq!(indices, [3, 2, 1, 3]);
}

#[test]
fn indices_that_do_not_fit_are_a_typed_error() {
    const MAX: usize = i32::MAX as usize;
    let fits = |sizes: &[usize], strides: &[usize]| {
        let tensor = view(sizes, strides);
        let narrow = tensor.packed_accessor::<u8, 2, i32>();
        assert_eq!(narrow.is_ok(), tensor.can_use_32bit_index());
        assert!(narrow.is_ok() || matches!(narrow, Err(Error::IndexTooNarrow { bits: 32 })), "{narrow:?}");
        assert!(tensor.packed_accessor::<u8, 2, i64>().is_ok());
        tensor.can_use_32bit_index()
    };
    assert!(fits(&[1, MAX], &[0, 0]));
    assert!(!fits(&[1, MAX + 1], &[0, 0]));
    assert!(!fits(&[2, MAX], &[0, 0]), "the number of elements");
    assert!(!fits(&[0, MAX + 1], &[0, 0]), "a size");
    // The stride of a dimension of size 1 is never used.
    assert!(fits(&[1, 3], &[MAX + 1, 0]));
    let packed = view(&[1, 3], &[MAX + 1, 0]).packed_accessor::<u8, 2, i32>().unwrap();
    assert_eq!((packed.sizes, packed.strides), ([1, 3], [0, 0]));
    assert!(Tensor::undefined().can_use_32bit_index());
}

/// The offset of the last element counts, not only the number of elements.
#[test]
fn far_elements_need_wide_indices() {
    let layout =
        |stride| Layout::new(Shape::new(&[2]).unwrap(), Strides::new(&[stride]).unwrap(), 0).unwrap();
    let null = orlop_alloc::engine::Direct::new(orlop_alloc::backing::Null::new(FakeDeviceBacking::DEVICE));
    let allocator = orlop_alloc::Allocator::into_ref(null).erase();
    let storage = Storage::new(1 << 32, &TensorOptions::new().allocator(&allocator)).unwrap();
    let tensor = |stride| Tensor::from_storage(storage.clone(), layout(stride), DType::U8).unwrap();
    assert!(tensor(i32::MAX as usize).can_use_32bit_index());
    assert!(!tensor(i32::MAX as usize + 1).can_use_32bit_index());
}

#[test]
fn a_writing_kernel_gets_memory_of_its_own() {
    let first = Tensor::zeros([4], DType::I32).unwrap();
    let second = first.lazy_clone().unwrap();
    let (reads, writes) = (
        first.packed_accessor::<i32, 1, i32>().unwrap(),
        second.packed_accessor_mut::<i32, 1, i32>().unwrap(),
    );
    assert_ne!(reads.data, writes.data);
    let third = second.lazy_clone().unwrap();
    assert_ne!(third.packed_accessor::<i32, 1, i32>().unwrap().data, writes.data);
    let expanded = first.select(0, 0).unwrap().expand([3]).unwrap();
    assert!(matches!(expanded.packed_accessor_mut::<i32, 1, i32>(), Err(Error::InternalOverlap)));
    assert!(matches!(first.packed_accessor::<f32, 1, i32>(), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(first.packed_accessor::<i32, 2, i64>(), Err(Error::RankMismatch { .. })));
    let guard = first.as_mut_slice::<i32>().unwrap();
    assert!(matches!(first.packed_accessor::<i32, 1, i32>(), Err(Error::Borrowed { .. })));
    drop(guard);
    let empty = Tensor::empty([0, 3], DType::F32).unwrap().packed_accessor::<f32, 2, i32>().unwrap();
    assert_eq!((empty.data, empty.sizes), (0, [0, 3]));
}
