//! ndarray: the same elements on both sides, for all strides.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use ndarray::{Array, Array2, ArrayD, Axis, IxDyn, ShapeBuilder as _, Slice, array, s};
use orlop_core::{Complex, DType, Device, Error as LayoutError, F8E5M2, bf16};
use orlop_tensor::interchange::ndarray::{NdArrayView, NdArrayViewMut};
use orlop_tensor::{Bool8, Error, Plain, Result, Tensor};
use proptest::prelude::*;

fn counting(sizes: &[usize]) -> ArrayD<i32> {
    let mut next = 0..;
    ArrayD::from_shape_simple_fn(IxDyn(sizes), || next.next().unwrap())
}

fn elements<T: Copy>(array: &ArrayD<T>) -> Vec<T> {
    array.iter().copied().collect()
}

#[test]
fn owned_arrays_are_taken_over() {
    let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let address = array.as_ptr();
    let tensor = Tensor::from_ndarray(array.reversed_axes()).unwrap();
    assert_eq!((tensor.sizes(), tensor.strides().as_slice()), (&[3, 2][..], &[1, 3][..]));
    assert_eq!(tensor.as_ndarray::<f32>().unwrap().as_ptr(), address);
    assert_eq!(
        (tensor.device(), tensor.to_vec::<f32>().unwrap()),
        (Device::CPU, vec![1., 4., 2., 5., 3., 6.])
    );
    tensor.fill_(1.0).unwrap();
}

#[test]
fn with_what_they_own_beside_their_elements() {
    let array = Array2::from_shape_vec((4, 5), (0..20).collect()).unwrap();
    let address = array.as_ptr();
    let tensor = Tensor::from_ndarray(array.slice_move(s![1..3, 1..;2])).unwrap();
    assert_eq!((tensor.storage_offset(), tensor.strides().as_slice()), (6, &[5, 2][..]));
    assert_eq!(tensor.storage().unwrap().nbytes(), 80);
    assert_eq!(tensor.storage().unwrap().as_ptr().unwrap().cast(), address);
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [6, 8, 11, 13]);
}

#[test]
fn backwards_is_copied() {
    let mut array = array![1u8, 2, 3];
    array.invert_axis(Axis(0));
    let address = array.as_ptr();
    let tensor = Tensor::from_ndarray(array).unwrap();
    assert_eq!((tensor.to_vec::<u8>().unwrap(), tensor.is_contiguous()), (vec![3, 2, 1], true));
    assert_ne!(tensor.as_ndarray::<u8>().unwrap().as_ptr(), address);
    // A single element has no direction, so its negative stride is accepted.
    let mut array = array![[1u8, 2, 3]];
    array.invert_axis(Axis(0));
    let address = array.as_ptr();
    assert_eq!(Tensor::from_ndarray(array).unwrap().as_ndarray::<u8>().unwrap().as_ptr(), address);
}

#[test]
fn nothing_and_one() {
    for sizes in [&[0][..], &[3, 0, 2], &[]] {
        let array = counting(sizes);
        for tensor in [Tensor::try_from(&array).unwrap(), Tensor::from_ndarray(array.clone()).unwrap()] {
            assert_eq!((tensor.sizes(), tensor.is_contiguous()), (sizes, true));
            assert_eq!(tensor.to_ndarray::<i32>().unwrap(), array);
            assert_eq!(&*tensor.as_ndarray::<i32>().unwrap(), &*array);
            tensor.as_mut_ndarray::<i32>().unwrap().fill(7);
        }
    }
}

#[test]
fn sizes_that_only_tensors_have() {
    let tensor = Tensor::zeros([0, 1i64 << 40, 1 << 40], DType::F32).unwrap();
    let too_large = |result: Result<()>| {
        assert!(matches!(result, Err(Error::Layout(LayoutError::Overflow { .. }))), "{result:?}");
    };
    too_large(tensor.as_ndarray::<f32>().map(drop));
    too_large(tensor.as_mut_ndarray::<f32>().map(drop));
    too_large(tensor.to_ndarray::<f32>().map(drop));
}

#[test]
fn all_kinds_of_arrays() {
    let array = array![[1i64, 2], [3, 4]];
    let shared = array.to_shared();
    let expected = [2, 4];
    for tensor in [
        Tensor::try_from(&array.column(1)),
        Tensor::try_from(&*array.column(1)),
        Tensor::try_from(&shared.slice_move(s![.., 1])),
        Tensor::try_from(&array.clone().column_mut(1)),
        Tensor::try_from(&array.column(0).mapv(|value| value + 1)),
    ] {
        let last = tensor.unwrap().to_vec::<i64>().unwrap();
        assert_eq!(last, expected);
    }
}

#[test]
fn bools() {
    let array = array![[true, false], [true, true]];
    for tensor in
        [Tensor::try_from(&array.t()).unwrap(), Tensor::from_ndarray(array.reversed_axes()).unwrap()]
    {
        assert_eq!(tensor.dtype(), DType::Bool);
        assert_eq!(tensor.to_vec::<bool>().unwrap(), [true, true, false, true]);
        let view = tensor.as_ndarray::<Bool8>().unwrap();
        assert_eq!((view[[1, 0]].get(), view[[1, 1]].get()), (false, true));
        drop(view);
        // Any byte other than 0 is true.
        tensor.as_mut_ndarray::<Bool8>().unwrap()[[1, 0]] = Bool8::from_byte(2);
        assert_eq!(elements(&tensor.to_ndarray::<bool>().unwrap()), [true; 4]);
        assert_eq!(Tensor::try_from(&*tensor.as_ndarray::<Bool8>().unwrap()).unwrap().dtype(), DType::Bool);
    }
}

#[test]
fn every_type() {
    fn there_and_back<T: Plain>(values: [T; 4]) {
        let array = Array::from_shape_vec((2, 2).f(), values.to_vec()).unwrap();
        let tensor = Tensor::from_ndarray(array.clone()).unwrap();
        assert_eq!(tensor.dtype(), T::DTYPE);
        assert_eq!(&*tensor.as_ndarray::<T>().unwrap(), &*array.view().into_dyn());
        assert_eq!(tensor.to_ndarray::<T::Element>().unwrap().mapv(T::plain), array.into_dyn());
    }
    there_and_back([1u8, 2, 3, 4]);
    there_and_back([1i16, -2, 3, 4]);
    there_and_back([1u64, 2, 3, u64::MAX]);
    there_and_back([1.0f64, 2.0, 3.0, 4.0]);
    there_and_back([1.0, 2.0, 3.0, 4.0].map(bf16::from_f32));
    there_and_back([1, 2, 3, 4].map(F8E5M2::from_bits));
    there_and_back([1.0, 2.0, 3.0, 4.0].map(|re| Complex::new(re, -re)));
    there_and_back([true, false, false, true].map(Bool8::from));
}

#[test]
fn guards() {
    let tensor = Tensor::zeros([2, 3], DType::F32).unwrap();
    let reading = tensor.as_ndarray::<f32>().unwrap();
    let also: NdArrayView<'_, f32> = tensor.as_ndarray().unwrap();
    assert!(matches!(tensor.as_mut_ndarray::<f32>(), Err(Error::Borrowed { .. })));
    assert_eq!(reading.sum() + also.sum(), 0.0);
    drop((reading, also));
    let mut writing: NdArrayViewMut<'_, f32> = tensor.as_mut_ndarray().unwrap();
    assert!(matches!(tensor.as_ndarray::<f32>(), Err(Error::Borrowed { .. })));
    *writing += 2.0;
    writing.index_axis_mut(Axis(0), 0).fill(1.0);
    drop(writing);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1., 1., 1., 2., 2., 2.]);
    assert!(matches!(tensor.as_ndarray::<f64>(), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(tensor.to_ndarray::<f64>(), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(Tensor::undefined().as_ndarray::<f32>(), Err(Error::Undefined)));
}

#[test]
fn shared_elements_are_read_and_not_written() {
    let tensor = Tensor::from_slice(&[1i32, 2, 3]).unwrap().expand([2i64, 3]).unwrap();
    assert_eq!(&*tensor.as_ndarray::<i32>().unwrap(), &*array![[1, 2, 3], [1, 2, 3]].into_dyn());
    assert!(matches!(tensor.as_mut_ndarray::<i32>(), Err(Error::InternalOverlap)));
    let windows = Tensor::from_slice(&[1i32, 2, 3]).unwrap().unfold(0, 2, 1).unwrap();
    assert_eq!(&*windows.as_ndarray::<i32>().unwrap(), &*array![[1, 2], [2, 3]].into_dyn());
    assert!(matches!(windows.as_mut_ndarray::<i32>(), Err(Error::InternalOverlap)));
}

#[test]
fn writes_copy_first_and_keep_to_the_rules() {
    let tensor = Tensor::from_slice(&[1i32, 2]).unwrap();
    let clone = tensor.lazy_clone().unwrap();
    tensor.as_mut_ndarray::<i32>().unwrap().fill(5);
    assert_eq!(clone.to_vec::<i32>().unwrap(), [1, 2]);
    tensor.storage().unwrap().refuse_writes("done");
    assert!(matches!(tensor.as_mut_ndarray::<i32>(), Err(Error::ReadOnly { .. })));
    let mut reaching = clone;
    reaching.set_shape([3]).unwrap();
    assert!(matches!(reaching.as_ndarray::<i32>(), Err(Error::Layout(LayoutError::OutOfStorage { .. }))));
}

#[test]
fn guards_go_to_other_threads() {
    let tensor = Tensor::ones([4, 4], DType::F64).unwrap();
    let reading = tensor.as_ndarray::<f64>().unwrap();
    let sum = std::thread::scope(|scope| scope.spawn(|| reading.sum()).join().unwrap());
    assert_eq!(sum, 16.0);
    std::thread::scope(|scope| scope.spawn(move || drop(reading)).join().unwrap());
    assert!(tensor.zero_().is_ok());
}

/// A slice and a reversal along one dimension.
#[derive(Debug, Clone)]
struct DimSlice {
    dim: usize,
    from: usize,
    by: usize,
    backwards: bool,
    swap_with: usize,
}

fn cut() -> impl Strategy<Value = DimSlice> {
    (0..4usize, 0..3usize, 1..4usize, any::<bool>(), 0..4usize)
        .prop_map(|(dim, from, by, backwards, swap_with)| DimSlice { dim, from, by, backwards, swap_with })
}

/// Returns a view of the array with any strides.
fn cut_array(mut array: ArrayD<i32>, cuts: &[DimSlice]) -> ArrayD<i32> {
    for cut in cuts {
        let ndim = array.ndim();
        let (dim, other) = (Axis(cut.dim % ndim), cut.swap_with % ndim);
        let from = cut.from.min(array.len_of(dim)).cast_signed();
        let by = if cut.backwards { -cut.by.cast_signed() } else { cut.by.cast_signed() };
        array.slice_axis_inplace(dim, Slice::new(from, None, by));
        array.swap_axes(dim.index(), other);
    }
    array
}

/// Returns a view of the tensor with any strides that tensors have.
fn cut_tensor(mut tensor: Tensor, cuts: &[DimSlice]) -> Tensor {
    for cut in cuts {
        let ndim = tensor.ndim();
        let (dim, other) = ((cut.dim % ndim).cast_signed(), (cut.swap_with % ndim).cast_signed());
        let cut = tensor.slice(dim, Some(cut.from.cast_signed()), None, cut.by).unwrap();
        tensor = cut.transpose(dim, other).unwrap();
    }
    tensor
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 256 }))]

    #[test]
    fn arrays_come_in(
        sizes in prop::collection::vec(0..5usize, 1..5),
        cuts in prop::collection::vec(cut(), 0..5),
    ) {
        let array = cut_array(counting(&sizes), &cuts);
        let backwards = (0..array.ndim()).any(|dim| array.shape()[dim] > 1 && array.strides()[dim] < 0);
        let copied = Tensor::try_from(&array).unwrap();
        prop_assert!(copied.is_contiguous());
        prop_assert_eq!(copied.sizes(), array.shape());
        prop_assert_eq!(copied.to_vec::<i32>().unwrap(), elements(&array));

        let (address, expected) = (array.as_ptr(), elements(&array));
        let taken = Tensor::from_ndarray(array).unwrap();
        prop_assert_eq!(taken.to_vec::<i32>().unwrap(), expected.clone());
        if !expected.is_empty() {
            let same = taken.as_ndarray::<i32>().unwrap().as_ptr() == address;
            prop_assert_eq!(same, !backwards);
        }
    }

    #[test]
    fn tensors_go_out(
        sizes in prop::collection::vec(0..5usize, 1..5),
        cuts in prop::collection::vec(cut(), 0..5),
    ) {
        let tensor = Tensor::try_from(&counting(&sizes)).unwrap();
        let view = cut_tensor(tensor.clone(), &cuts);
        let expected = view.to_vec::<i32>().unwrap();
        let seen = view.as_ndarray::<i32>().unwrap();
        prop_assert_eq!(seen.shape(), view.sizes());
        prop_assert_eq!(seen.iter().copied().collect::<Vec<_>>(), expected.clone());
        drop(seen);
        prop_assert_eq!(elements(&view.to_ndarray::<i32>().unwrap()), expected.clone());

        // Only the view's elements are written.
        view.as_mut_ndarray::<i32>().unwrap().mapv_inplace(|value| -1 - value);
        let written: Vec<i32> = expected.iter().map(|value| -1 - value).collect();
        prop_assert_eq!(view.to_vec::<i32>().unwrap(), written);
        let negative = tensor.to_vec::<i32>().unwrap().iter().filter(|&&value| value < 0).count();
        prop_assert_eq!(negative, view.numel());
    }
}
