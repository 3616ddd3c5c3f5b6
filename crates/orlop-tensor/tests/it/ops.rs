//! Copies, casts and fills.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::mock_device::{FAR, with_device};
use orlop_alloc::Allocator;
use orlop_alloc::backing::System;
use orlop_alloc::engine::Arena;
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, Strides, dispatch};
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

/// Returns row-major, column-major and channels-last tensors, and a channels-last slice with gaps.
fn layouts(dtype: DType) -> Vec<Tensor> {
    let plain = Tensor::ones([2, 3, 4, 5], dtype).unwrap();
    let last = plain.contiguous(MemoryFormat::ChannelsLast).unwrap();
    vec![plain.clone(), plain.permute([3, 2, 1, 0]).unwrap(), last.clone(), last.narrow(3, 1, 3).unwrap()]
}

/// Unset options keep the dtype, the device, the kind and the order of dimensions.
#[test]
fn what_is_not_named_is_kept() {
    for dtype in DType::ALL {
        for tensor in layouts(dtype) {
            let kind = MemoryKind::KvCache;
            let tensor = tensor.to(TensorOptions::new().kind(kind)).unwrap();
            assert_eq!((tensor.dtype(), tensor.memory_kind()), (dtype, kind));
            // Each of the four options is set or not.
            for named in 0u8..16 {
                let names = |bit: u8| named & (1 << bit) != 0;
                let mut options = TensorOptions::new();
                let (mut as_dtype, mut as_kind) = (dtype, kind);
                if names(0) {
                    // The default, set explicitly.
                    (options, as_dtype) = (options.dtype(DType::F32), DType::F32);
                }
                if names(1) {
                    options = options.device(Device::CPU);
                }
                if names(2) {
                    (options, as_kind) = (options.kind(MemoryKind::Default), MemoryKind::Default);
                }
                if names(3) {
                    options = options.memory_format(MemoryFormat::Contiguous);
                }
                let other = tensor.to(options).unwrap();
                let like = tensor.empty_like_with(options).unwrap();
                for made in [&other, &like] {
                    assert_eq!((made.dtype(), made.memory_kind()), (as_dtype, as_kind), "{named:04b}");
                    let preserved = tensor.layout().preserved_strides();
                    let strides = if names(3) { Strides::contiguous(tensor.shape()) } else { preserved };
                    assert_eq!((made.sizes(), made.strides()), (tensor.sizes(), &strides), "{named:04b}");
                }
                let is_so = as_dtype == dtype && as_kind == kind && (!names(3) || tensor.is_contiguous());
                assert_eq!(other.is_same(&tensor), is_so, "{named:04b}");
                let ones = Tensor::ones(tensor.shape().clone(), as_dtype).unwrap();
                dispatch!(as_dtype, T => {
                    assert_eq!(other.to_vec::<T>().unwrap(), ones.to_vec::<T>().unwrap());
                });
            }
        }
    }
}

#[test]
fn nothing_is_lost_on_the_way() {
    let ids = Tensor::from_slice(&[9_007_199_254_740_993i64, 16_777_217]).unwrap();
    let there = ids.to(TensorOptions::new().device(Device::CPU)).unwrap();
    assert!(there.is_same(&ids));
    with_device(|_| {
        let there = ids.to(TensorOptions::new().device(FAR)).unwrap();
        assert_eq!(
            (there.dtype(), there.to_vec::<i64>().unwrap()),
            (DType::I64, ids.to_vec::<i64>().unwrap())
        );
        let back = there.t().unwrap().to(TensorOptions::new().device(Device::CPU)).unwrap();
        assert_eq!(back.to_vec::<i64>().unwrap(), ids.to_vec::<i64>().unwrap());
        // Only the host has pinned memory.
        let pinned = ids.to(TensorOptions::new().kind(MemoryKind::HostPinned)).unwrap();
        assert_eq!(pinned.memory_kind(), MemoryKind::HostPinned);
        let there = pinned.to_device(FAR).unwrap();
        assert_eq!((there.memory_kind(), there.dtype()), (MemoryKind::Default, DType::I64));
    });
}

/// The tensor gets the allocator and the alignment that are set.
#[test]
fn memory_that_is_named_is_gone_to() {
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let tensor = Tensor::arange(0.0, 8.0, 1.0, DType::I16).unwrap();
    let moved = tensor.to(TensorOptions::new().allocator(&arena)).unwrap();
    assert!(moved.storage().unwrap().block().unwrap().is_from(&arena));
    assert_eq!(moved.to_vec::<i16>().unwrap(), tensor.to_vec::<i16>().unwrap());
    assert!(moved.to(TensorOptions::new().allocator(&arena)).unwrap().is_same(&moved));
    let page = TensorOptions::new().align(Alignment::new(1 << 16).unwrap());
    let aligned = moved.to(page).unwrap();
    assert_eq!(aligned.storage().unwrap().block().unwrap().address() % (1 << 16), 0);
    assert!(aligned.to(page).unwrap().is_same(&aligned));
    // A part of it has another address.
    let part = aligned.narrow(0, 1, 4).unwrap();
    let copy = part.to(page).unwrap();
    assert!(!copy.is_same(&part));
    assert_eq!(copy.storage().unwrap().block().unwrap().address() % (1 << 16), 0);
    assert_eq!(copy.to_vec::<i16>().unwrap(), part.to_vec::<i16>().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..Default::default()
    })]

    /// Copies are right for any order of dimensions, gaps and casts.
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
