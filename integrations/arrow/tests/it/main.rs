//! Buffers and tensors share memory.

use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};
use orlop::memory::Error as MemoryError;
use orlop::prelude::*;
use orlop::tensor::Error as TensorError;
use orlop_arrow::{Error, NotABuffer, from_buffer, into_buffer};
use std::panic::RefUnwindSafe;

#[test]
fn a_buffer_is_the_memory_of_its_tensor() {
    let context = Context::new();
    let live = || context.stats(Device::CPU).live();
    let tensor = Tensor::full([4, 8], 2.5, TensorOptions::new().context(&context)).unwrap();
    tensor.narrow(0, 1, 2).unwrap().fill_(3.0).unwrap();
    let address = tensor.as_slice::<f32>().unwrap().as_ptr();
    // A view does not own the storage while its base exists, and is given back.
    let view = tensor.narrow(0, 1, 2).unwrap();
    let refused = into_buffer(view).unwrap_err();
    assert!(matches!(refused.source, Error::Shared));
    assert_eq!(refused.tensor.sizes(), [2, 8]);
    drop(tensor);
    let buffer = into_buffer(refused.tensor).unwrap();
    assert_eq!(buffer.as_ptr(), address.wrapping_add(8).cast());
    assert_eq!(&ScalarBuffer::<f32>::from(buffer.clone())[..], &[3.0; 16]);
    // The buffer keeps the memory, on any thread.
    assert!(live() >= 128);
    std::thread::spawn(move || drop(buffer)).join().unwrap();
    assert_eq!(live(), 0);
}

#[test]
fn a_tensor_is_the_memory_of_its_buffer() {
    let buffer = Buffer::from_vec(vec![1i64, 2, 3, 4, 5, 6]);
    let address = buffer.as_ptr();
    let tensor = from_buffer(buffer, [2, 3], DType::I64).unwrap();
    assert_eq!(tensor.as_slice::<i64>().unwrap().as_ptr().cast(), address);
    assert_eq!(tensor.t().unwrap().to_vec::<i64>().unwrap(), [1, 4, 2, 5, 3, 6]);
    assert!(matches!(tensor.fill_(1), Err(TensorError::ReadOnly { .. })));
    // The memory is Arrow's, so it does not become a buffer again.
    assert!(matches!(into_buffer(tensor), Err(NotABuffer { source: Error::Shared, .. })));
    let empty = from_buffer(MutableBuffer::new(0).into(), [0, 3], DType::F32).unwrap();
    assert_eq!(empty.numel(), 0);
}

#[test]
fn a_buffer_has_the_bytes_of_any_contiguous_tensor() {
    let numbers = || Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let cases = [
        ("no elements", Tensor::zeros([0, 3], DType::F32).unwrap(), &[][..]),
        ("an empty view", numbers().narrow(0, 2, 0).unwrap(), &[]),
        ("no dimensions", Tensor::full([0usize; 0], 7.0, DType::F32).unwrap(), &[7.0]),
        ("a column", numbers().view([1, 4]).unwrap().t().unwrap(), &[1.0, 2.0, 3.0, 4.0]),
        ("one of a column", numbers().view([4, 1]).unwrap().narrow(0, 2, 1).unwrap(), &[3.0]),
    ];
    for (name, tensor, expected) in cases {
        let sizes = tensor.sizes().to_vec();
        let buffer = into_buffer(tensor).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert_eq!(&ScalarBuffer::<f32>::from(buffer.clone())[..], expected, "{name}");
        let back = from_buffer(buffer, &sizes[..], DType::F32).unwrap();
        assert_eq!((back.sizes(), &back.to_vec::<f32>().unwrap()[..]), (&sizes[..], expected), "{name}");
    }
    // What is empty is refused for the same reasons as anything else.
    let base = numbers();
    let empty = base.narrow(0, 2, 0).unwrap();
    assert!(matches!(into_buffer(empty).unwrap_err().source, Error::Shared));
}

#[test]
fn what_cannot_be_shared_is_an_error() {
    let floats = Buffer::from_vec(vec![0f32; 6]);
    let length = from_buffer(floats.clone(), [4], DType::F32);
    assert!(matches!(length, Err(Error::Length { expected: 16, actual: 24 })));
    let misaligned = from_buffer(floats.slice_with_length(1, 4), [1], DType::F32);
    assert!(matches!(misaligned, Err(Error::Tensor(TensorError::Misaligned { .. }))));
    assert!(matches!(from_buffer(floats, [24], DType::Bool), Err(Error::Bits)));
    let strided = Tensor::zeros([4, 4], DType::F32).unwrap().t().unwrap();
    assert!(into_buffer(strided).is_err());
    let tensor = Tensor::zeros([4], DType::F32).unwrap();
    let writer = tensor.as_mut_slice::<f32>().unwrap();
    let refused = into_buffer(tensor.clone()).unwrap_err();
    assert!(matches!(refused.source, Error::Tensor(TensorError::Borrowed { .. })));
    drop(writer);
    let flags = Tensor::zeros([8], DType::Bool).unwrap();
    assert!(matches!(into_buffer(flags).unwrap_err().source, Error::Bits));
}

#[test]
fn blocks_may_be_seen_after_a_panic() {
    fn check<T: RefUnwindSafe>() {}
    check::<Block>();
    check::<orlop::memory::MemoryBlock>();
    // Nothing is lost if a panic passes through code that holds a block.
    let context = Context::new();
    let block = context.allocate(Device::CPU, &Request::new(64)).unwrap();
    let result: Result<(), MemoryError> = std::panic::catch_unwind(|| block.bytes().map(|_| ())).unwrap();
    result.unwrap();
}

/// Another thread replaces the memory while it becomes a buffer.
#[test]
fn memory_that_is_replaced_meanwhile_is_an_error() {
    for _ in 0..200 {
        let tensor = Tensor::zeros([4096], DType::U8).unwrap();
        let storage = tensor.storage().unwrap().clone();
        let other = std::thread::spawn(move || {
            let small = Tensor::zeros([16], DType::U8).unwrap();
            drop(storage.swap_data(small.storage().unwrap()));
        });
        match into_buffer(tensor) {
            Ok(buffer) => assert_eq!(buffer.len(), 4096),
            Err(refused) => {
                assert!(matches!(refused.source, Error::Shared | Error::Changed | Error::Tensor(_)));
            }
        }
        other.join().unwrap();
    }
}
