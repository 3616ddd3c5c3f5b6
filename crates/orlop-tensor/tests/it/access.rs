//! Access to elements: guards and their conflicts.

use orlop_core::DType;
use orlop_tensor::{Bool8, Borrower, Error, Tensor};

fn matrix() -> Tensor {
    let row = Tensor::arange(0.0, 12.0, 1.0, DType::I32).expect("memory");
    row.view([3, 4]).expect("twelve elements")
}

#[test]
fn any_number_of_readers_or_one_writer_over_all_handles() {
    let tensor = matrix();
    let (view, clone) = (tensor.t().unwrap(), tensor.clone());
    let first = tensor.as_slice::<i32>().unwrap();
    let second = view.accessor::<i32, 2>().unwrap();
    assert!(matches!(clone.as_mut_slice::<i32>(), Err(Error::Borrowed { by: Borrower::Readers })));
    assert!(matches!(clone.fill_(1), Err(Error::Borrowed { by: Borrower::Readers })));
    assert_eq!(first[5], second[[1, 1]]);
    drop((first, second));
    let writer = view.accessor_mut::<i32, 2>().unwrap();
    assert!(matches!(clone.as_slice::<i32>(), Err(Error::Borrowed { by: Borrower::Writer })));
    assert!(matches!(clone.to_vec::<i32>(), Err(Error::Borrowed { .. })));
    assert!(matches!(tensor.storage().unwrap().read(), Err(Error::Borrowed { .. })));
    drop(writer);
    assert!(clone.as_slice::<i32>().is_ok());
}

#[test]
fn a_leaked_guard_stays_a_refusal() {
    let tensor = matrix();
    std::mem::forget(tensor.as_slice::<i32>().unwrap());
    assert!(tensor.as_mut_slice::<i32>().is_err());
    assert!(tensor.as_slice::<i32>().is_ok());
    std::mem::forget(matrix().as_mut_slice::<i32>().unwrap());
}

#[test]
fn guards_may_be_used_on_other_threads() {
    let tensor = matrix();
    let elements = tensor.as_slice::<i32>().unwrap();
    let sum: i32 = std::thread::scope(|scope| {
        let halves = [&elements[..6], &elements[6..]];
        let threads = halves.map(|half| scope.spawn(move || half.iter().sum::<i32>()));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, 66);
}

#[test]
fn accessors_follow_strides() {
    let tensor = matrix();
    let transposed = tensor.t().unwrap();
    let elements = transposed.accessor::<i32, 2>().unwrap();
    assert_eq!((elements.sizes(), elements.strides()), ([4, 3], [1, 4]));
    assert_eq!((elements[[3, 2]], elements.get([4, 0]), elements.get([0, 3])), (11, None, None));
    // SAFETY: the index is below the sizes.
    assert_eq!(unsafe { elements.get_unchecked([1, 2]) }, 9);
    let row = elements.at(2).unwrap();
    assert_eq!(row.iter().collect::<Vec<_>>(), [2, 6, 10]);
    assert_eq!(row.at(1).unwrap()[[]], 6);
    assert!(elements.at(4).is_err());
    assert_eq!(elements.iter().len(), 12);
}

#[test]
fn mutable_accessors_write_through_views() {
    let tensor = matrix();
    let column = tensor.select(1, 2).unwrap();
    let mut elements = column.accessor_mut::<i32, 1>().unwrap();
    elements[[0]] = 100;
    assert!(elements.set([2], 102) && !elements.set([3], 0));
    // SAFETY: the index is below the sizes.
    *unsafe { elements.get_unchecked_mut([1]) } += 1;
    elements.iter_mut().for_each(|element| *element += 1000);
    drop(elements);
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [0, 1, 1100, 3, 4, 5, 1007, 7, 8, 9, 1102, 11]);
    let mut elements = tensor.accessor_mut::<i32, 2>().unwrap();
    elements.at_mut(1).unwrap().at_mut(0).unwrap()[[]] = -4;
    drop(elements);
    assert_eq!(tensor.to_vec::<i32>().unwrap()[4], -4);
}

#[test]
#[should_panic(expected = "out of bounds")]
fn indexing_out_of_bounds_panics_as_slices_do() {
    let tensor = matrix();
    let _ = tensor.accessor::<i32, 2>().unwrap()[[0, 4]];
}

#[test]
fn what_shares_elements_is_not_written() {
    let row = Tensor::from_slice(&[1i32, 2, 3]).unwrap();
    let expanded = row.expand([4, 3]).unwrap();
    assert!(matches!(expanded.accessor_mut::<i32, 2>(), Err(Error::InternalOverlap)));
    assert!(matches!(expanded.fill_(0), Err(Error::InternalOverlap)));
    assert!(matches!(
        row.unfold(0, 2, 1).unwrap().copy_(&row.narrow(0, 0, 2).unwrap()),
        Err(Error::InternalOverlap)
    ));
    assert_eq!(expanded.accessor::<i32, 2>().unwrap()[[3, 1]], 2);
}

#[test]
fn types_and_ranks_are_asked() {
    let tensor = matrix();
    assert!(matches!(tensor.as_slice::<f32>(), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(tensor.accessor::<i32, 3>(), Err(Error::RankMismatch { expected: 3, actual: 2 })));
    assert!(matches!(tensor.t().unwrap().as_slice::<i32>(), Err(Error::NotContiguous)));
    assert!(matches!(Tensor::undefined().as_slice::<i32>(), Err(Error::Undefined)));
}

#[test]
fn any_byte_is_a_bool() {
    let bytes = Tensor::from_slice(&[0u8, 1, 7]).unwrap();
    let bools = bytes.view_dtype(DType::Bool).unwrap();
    assert_eq!(bools.to_vec::<bool>().unwrap(), [false, true, true]);
    assert_eq!(bools.as_slice::<Bool8>().unwrap()[2], Bool8::from(true));
    assert_eq!(bools.to_dtype(DType::I32).unwrap().to_vec::<i32>().unwrap(), [0, 1, 1]);
    assert_eq!(bools.duplicate().unwrap().view_dtype(DType::U8).unwrap().to_vec::<u8>().unwrap(), [0, 1, 1]);
}

#[test]
fn no_elements_and_no_dimensions() {
    let none = Tensor::empty([3, 0, 2], DType::F64).unwrap();
    assert_eq!(none.as_slice::<f64>().unwrap().len(), 0);
    assert_eq!(none.iter::<f64>().unwrap().count(), 0);
    assert_eq!(none.accessor::<f64, 3>().unwrap().at(2).unwrap().sizes(), [0, 2]);
    let one = Tensor::full((), 2.5, DType::F64).unwrap();
    assert_eq!((one.ndim(), one.item::<f64>().unwrap()), (0, 2.5));
    assert_eq!(one.accessor::<f64, 0>().unwrap()[[]], 2.5);
    assert_eq!(one.iter::<f64>().unwrap().collect::<Vec<_>>(), [2.5]);
    assert!(none.item::<f64>().is_err() && Tensor::undefined().item::<f32>().is_err());
}

#[test]
fn more_elements_than_there_is_room_for_are_an_error() {
    let one = Tensor::zeros([1], DType::F64).unwrap();
    // More than the address space, and more than the machine: Miri aborts on allocations that fail.
    for count in if cfg!(miri) { vec![1i64 << 60] } else { vec![1 << 60, 1 << 45] } {
        let many = one.expand([count]).unwrap();
        assert!(matches!(many.to_vec::<f64>(), Err(Error::HostMemory { .. })));
        assert!(matches!(many.item::<f64>(), Err(Error::CountMismatch { expected: 1, .. })));
        assert!(matches!(many.split(1, 0), Err(Error::HostMemory { .. })));
        #[cfg(feature = "ndarray")]
        assert!(matches!(many.to_ndarray::<f64>(), Err(Error::HostMemory { .. })));
    }
}

#[test]
fn elements_that_are_not_there_get_no_room() {
    let mut short = Tensor::zeros([1], DType::Bool).unwrap();
    short.set_shape([1i64 << 45]).unwrap();
    let outside = |result| matches!(result, Err(Error::Layout(orlop_core::Error::OutOfStorage { .. })));
    assert!(outside(short.to_vec::<bool>().map(drop)));
    #[cfg(feature = "ndarray")]
    assert!(outside(short.to_ndarray::<bool>().map(drop)));
    #[cfg(feature = "safetensors")]
    {
        use orlop_tensor::interchange::safetensors::{Metadata, save};
        let folder = tempfile::tempdir().unwrap();
        assert!(outside(save(folder.path().join("short"), [("short", &short)], &Metadata::new())));
    }
}

#[test]
fn no_index_leads_to_no_elements() {
    let far = Tensor::zeros([0], DType::I32).unwrap();
    let far = far.as_strided([5, 0], [isize::MAX, 1], Some(0)).unwrap();
    let elements = far.accessor::<i32, 2>().unwrap();
    assert_eq!((elements.get([4, 0]), elements.at(4).unwrap().get([0])), (None, None));
}

#[test]
fn elements_are_written_in_order_over_any_strides() {
    let tensor = matrix();
    let every_other = tensor.slice(1, None, None, 2).unwrap().t().unwrap();
    let mut elements = every_other.elements_mut::<i32>().unwrap();
    assert!(matches!(tensor.iter::<i32>(), Err(Error::Borrowed { by: Borrower::Writer })));
    assert_eq!(elements.iter_mut().len(), 6);
    let all: Vec<&mut i32> = elements.iter_mut().collect();
    assert_eq!(all, [&0, &4, &8, &2, &6, &10]);
    all.into_iter().for_each(|element| *element = -*element);
    for element in &mut elements {
        *element -= 100;
    }
    drop(elements);
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [-100, 1, -102, 3, -104, 5, -106, 7, -108, 9, -110, 11]);
    let mut accessor = tensor.accessor_mut::<i32, 2>().unwrap();
    assert_eq!(accessor.at_mut(2).unwrap().iter_mut().map(|element| *element).sum::<i32>(), -198);
    drop(accessor);
    let shared = tensor.select(0, 0).unwrap().expand([2, 4]).unwrap();
    assert!(matches!(shared.elements_mut::<i32>(), Err(Error::InternalOverlap)));
    tensor.storage().unwrap().refuse_writes("a constant");
    assert!(matches!(tensor.elements_mut::<i32>(), Err(Error::ReadOnly { .. })));
    let none = Tensor::empty([3, 0], DType::I32).unwrap();
    assert_eq!(none.elements_mut::<i32>().unwrap().iter_mut().count(), 0);
}

#[test]
fn elements_of_a_clone_that_was_put_off_are_its_own() {
    let tensor = matrix();
    let clone = tensor.lazy_clone().unwrap();
    clone.t().unwrap().elements_mut::<i32>().unwrap().iter_mut().for_each(|element| *element += 1);
    assert_eq!((tensor.to_vec::<i32>().unwrap()[3], clone.to_vec::<i32>().unwrap()[3]), (3, 4));
}
