//! Memory formats of tensors with four and five dimensions: conversion, values, what preserves them.

use orlop_core::{DType, MemoryFormat};
use orlop_tensor::{Error, Tensor, TensorOptions};

/// The formats with the sizes they are for, and their strides for these sizes.
const CASES: [(MemoryFormat, &[usize], &[usize]); 2] = [
    (MemoryFormat::ChannelsLast, &[2, 3, 4, 5], &[60, 1, 15, 3]),
    (MemoryFormat::ChannelsLast3d, &[2, 3, 4, 5, 6], &[360, 1, 90, 18, 3]),
];

#[test]
fn tensors_are_converted_there_and_back() {
    for (format, sizes, strides) in CASES {
        let count: usize = sizes.iter().product();
        let plain = Tensor::arange(0.0, count as f64, 1.0, DType::I32).unwrap().view(sizes).unwrap();
        let last = plain.contiguous(format).unwrap();
        assert_eq!((last.sizes(), last.strides().as_slice()), (sizes, strides));
        assert!(last.is_contiguous_in(format) && !last.is_contiguous() && !plain.is_contiguous_in(format));
        assert_eq!(last.to_vec::<i32>().unwrap(), plain.to_vec::<i32>().unwrap());
        // Channels are the innermost: neighbours in memory are one plane apart.
        let plane = i32::try_from(count / 6).unwrap();
        let flat = last.as_strided([3usize], [1usize], None).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(flat, [0, plane, 2 * plane]);
        let back = last.contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(back.strides(), plain.strides());
        assert_eq!(back.as_slice::<i32>().unwrap()[..], plain.as_slice::<i32>().unwrap()[..]);
        let written = Tensor::zeros(sizes, TensorOptions::from(DType::I32).memory_format(format)).unwrap();
        written.copy_(&plain).unwrap();
        assert_eq!(written.as_strided([3usize], [1usize], None).unwrap().to_vec::<i32>().unwrap(), flat);
    }
}

#[test]
fn copies_casts_and_likenesses_preserve_the_format() {
    for (format, sizes, strides) in CASES {
        let options = TensorOptions::from(DType::F32).memory_format(format);
        let image = Tensor::ones(sizes, options).unwrap();
        assert_eq!((image.strides().as_slice(), image.layout().suggested_format()), (strides, format));
        let part = image.narrow(2, 1, 2).unwrap();
        assert_eq!(part.layout().suggested_format(), format);
        for like in [
            image.duplicate().unwrap(),
            image.empty_like().unwrap(),
            image.lazy_clone().unwrap(),
            image.to_dtype(DType::F64).unwrap(),
            image.to(TensorOptions::from(DType::I64).memory_format(MemoryFormat::Preserve)).unwrap(),
        ] {
            assert_eq!(like.strides().as_slice(), strides);
        }
        // A slice has gaps, and its copy does not.
        assert!(!part.is_contiguous_in(format) && part.duplicate().unwrap().is_contiguous_in(format));
    }
}

#[test]
fn a_format_is_for_its_number_of_dimensions() {
    for (format, sizes, _) in CASES {
        let other = &sizes[1..];
        let refused = Tensor::zeros(other, TensorOptions::from(DType::U8).memory_format(format));
        assert!(matches!(refused, Err(Error::Layout(_))), "{format} {other:?}");
        let plain = Tensor::zeros(other, DType::U8).unwrap();
        assert!(matches!(plain.contiguous(format), Err(Error::Layout(_))) && !plain.is_contiguous_in(format));
    }
}
