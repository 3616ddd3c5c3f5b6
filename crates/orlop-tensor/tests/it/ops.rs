//! Copies, casts and fills.

use orlop_core::{DType, MemoryFormat};
use orlop_tensor::{Error, Tensor, TensorOptions};
use proptest::prelude::*;
use std::borrow::Cow;

#[test]
fn copies_broadcast_and_cast() {
    let tensor = Tensor::zeros([2, 3], DType::F32).unwrap();
    tensor.copy_(&Tensor::from_slice(&[1i64, 2, 3]).unwrap()).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    tensor.t().unwrap().copy_(&Tensor::from_nested(&[[1u8], [2], [3]]).unwrap()).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    assert!(matches!(tensor.copy_(&Tensor::zeros([4], DType::F32).unwrap()), Err(Error::Layout(_))));
    assert!(matches!(tensor.copy_(&Tensor::undefined()), Err(Error::Undefined)));
}

#[test]
fn copies_within_a_storage_read_before_they_write() {
    let tensor = Tensor::arange(0.0, 6.0, 1.0, DType::I32).unwrap();
    tensor.narrow(0, 1, 5).unwrap().copy_(&tensor.narrow(0, 0, 5).unwrap()).unwrap();
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [0, 0, 1, 2, 3, 4]);
    let square = Tensor::arange(0.0, 9.0, 1.0, DType::I32).unwrap().view([3, 3]).unwrap();
    square.copy_(&square.t().unwrap()).unwrap();
    assert_eq!(square.to_vec::<i32>().unwrap(), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    let version = square.version();
    square.copy_(&square.clone()).unwrap();
    assert_eq!(square.version(), version);
}

#[test]
fn versions_count_writes_through_all_views() {
    let tensor = Tensor::zeros([4], DType::F32).unwrap();
    let view = tensor.narrow(0, 1, 2).unwrap();
    let before = tensor.version();
    view.fill_(1.0).unwrap();
    tensor.as_mut_slice::<f32>().unwrap()[0] = 2.0;
    assert_eq!((tensor.version(), view.version()), (before + 2, before + 2));
    tensor.to_vec::<f32>().unwrap();
    assert_eq!(tensor.version(), before + 2);
}

#[test]
fn what_is_so_already_is_not_copied() {
    let tensor = Tensor::zeros([2, 3], DType::F32).unwrap();
    assert!(tensor.contiguous(MemoryFormat::Contiguous).unwrap().is_same(&tensor));
    assert!(matches!(tensor.as_contiguous(MemoryFormat::Contiguous).unwrap(), Cow::Borrowed(_)));
    let transposed = tensor.t().unwrap();
    assert!(matches!(transposed.as_contiguous(MemoryFormat::Contiguous).unwrap(), Cow::Owned(_)));
    assert!(tensor.to_dtype(DType::F32).unwrap().is_same(&tensor));
    assert!(tensor.to(TensorOptions::from(DType::F32)).unwrap().is_same(&tensor));
    let other = tensor.to(TensorOptions::from(DType::F64).memory_format(MemoryFormat::Preserve)).unwrap();
    assert_eq!((other.dtype(), other.sizes()), (DType::F64, &[2, 3][..]));
    assert!(tensor.reshape([3, 2]).unwrap().is_alias_of(&tensor));
    assert!(!transposed.reshape([6]).unwrap().is_alias_of(&tensor));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..Default::default() })]

    /// Whatever the order of dimensions, gaps and casts: the elements arrive.
    #[test]
    fn copies_over_any_strides(
        sizes in prop::collection::vec(1usize..5, 1..5),
        seed in any::<u64>(),
        casts in any::<bool>(),
    ) {
        let order = |salt: u64| {
            let mut dims: Vec<usize> = (0..sizes.len()).collect();
            let key = |dim: usize| (seed ^ salt).wrapping_add(dim as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            dims.sort_by_key(|&dim| key(dim));
            dims
        };
        let permuted = |salt: u64, dtype: DType| {
            let dims = order(salt);
            let mut back = vec![0isize; dims.len()];
            dims.iter().zip(0..).for_each(|(&dim, place)| back[dim] = place);
            let outer: Vec<usize> = dims.iter().map(|&dim| sizes[dim] * 2).collect();
            let mut tensor = Tensor::zeros(&outer, dtype).unwrap();
            for (dim, &size) in (0isize..).zip(&outer) {
                tensor = if (seed ^ salt) >> dim & 1 == 0 {
                    tensor.slice(dim, Some(1), None, 2).unwrap()
                } else {
                    tensor.narrow(dim, 1, size / 2).unwrap()
                };
            }
            tensor.permute(back).unwrap()
        };
        let count: usize = sizes.iter().product();
        let plain = Tensor::arange(0.0, count as f64, 1.0, DType::I32).unwrap().view(&sizes).unwrap();
        let source = permuted(1, DType::I32);
        source.copy_(&plain).unwrap();
        let target = permuted(2, if casts { DType::F64 } else { DType::I32 });
        target.copy_(&source).unwrap();
        let arrived = target.to_dtype(DType::I32).unwrap();
        let counted: Vec<i32> = (0..).take(count).collect();
        prop_assert_eq!(&arrived.to_vec::<i32>().unwrap(), &counted);
        prop_assert_eq!(arrived.iter::<i32>().unwrap().collect::<Vec<_>>(), counted);
    }
}
