//! Export and import, for all dtypes and views.

use super::{Producer, count, import};
use orlop_core::DType;
use orlop_tensor::Tensor;
use orlop_tensor::interchange::dlpack;
use proptest::prelude::*;

/// Exports and imports a tensor: the same elements at the same address.
fn there_and_back(tensor: &Tensor) {
    let first = |tensor: &Tensor| {
        let offset = tensor.storage_offset() * tensor.itemsize();
        tensor.storage().unwrap().as_ptr().unwrap().addr() + offset
    };
    for mutable in [false, true] {
        let exported = if mutable { dlpack::export_mut(tensor) } else { dlpack::export(tensor) };
        let back = import(exported.unwrap().into_raw()).unwrap();
        assert_eq!((back.shape(), back.dtype()), (tensor.shape(), tensor.dtype()));
        if !tensor.is_contiguous() {
            assert_eq!(back.strides(), tensor.strides());
        }
        assert_eq!(back.storage().unwrap().is_read_only(), !mutable);
        if !tensor.is_empty() {
            assert_eq!(first(&back), first(tensor));
        }
        orlop_core::dispatch!(tensor.dtype(), T => {
            assert_eq!(back.to_vec::<T>().unwrap(), tensor.to_vec::<T>().unwrap());
        });
    }
}

#[test]
fn all_dtypes_there_and_back() {
    for dtype in DType::ALL {
        there_and_back(&Tensor::ones([2, 3], dtype).unwrap());
    }
}

#[test]
fn on_many_threads() {
    let (producer, calls) = Producer::new(&[1.0; 8], &[8], None);
    let imported = import(producer.versioned(|_| ())).unwrap();
    let exported = dlpack::export(&imported).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mine = imported.clone();
            scope.spawn(move || {
                let out = dlpack::export(&mine).unwrap();
                drop(mine);
                import(out.into_raw()).unwrap().to_vec::<f32>().unwrap()
            });
        }
        drop(imported);
        scope.spawn(move || drop(exported));
    });
    assert_eq!(count(&calls), 1);
}

/// An operation of [`views`].
#[derive(Debug, Clone)]
enum ViewStep {
    Transpose,
    Slice(isize, usize, usize),
    Select(isize, usize),
    Expand(usize),
}

fn step() -> impl Strategy<Value = ViewStep> {
    prop_oneof![
        Just(ViewStep::Transpose),
        (0..2isize, 0..4usize, 1..4usize).prop_map(|(dim, from, by)| ViewStep::Slice(dim, from, by)),
        (0..2isize, 0..4usize).prop_map(|(dim, index)| ViewStep::Select(dim, index)),
        (0..4usize).prop_map(ViewStep::Expand),
    ]
}

/// Returns the view after this step, or the tensor if the step is not possible.
fn after(tensor: Tensor, step: &ViewStep) -> Tensor {
    let next = match *step {
        ViewStep::Transpose => tensor.transpose(0, -1),
        ViewStep::Slice(dim, from, by) => tensor.slice(dim, Some(from.cast_signed()), None, by),
        ViewStep::Select(dim, index) => tensor.select(dim, index.cast_signed()),
        ViewStep::Expand(size) => {
            let mut sizes = vec![i64::try_from(size).unwrap()];
            sizes.resize(tensor.ndim() + 1, -1);
            tensor.expand(sizes)
        }
    };
    next.unwrap_or(tensor)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 256 }))]

    #[test]
    fn views_there_and_back(
        sizes in prop::collection::vec(0..5usize, 1..4),
        steps in prop::collection::vec(step(), 0..6),
    ) {
        let count: usize = sizes.iter().product();
        let data: Vec<i32> = (0..i32::try_from(count).unwrap()).collect();
        let tensor = Tensor::from_vec(sizes, data).unwrap();
        there_and_back(&steps.iter().fold(tensor, after));
    }
}
