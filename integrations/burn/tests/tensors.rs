//! burn's tensors in memory of orlop.

use burn_std::{AllocationProperty, Bytes, DType as BurnDType, TensorData};
use burn_tensor::Tensor as BurnTensor;
use orlop::prelude::*;
use orlop::tensor::interchange::safetensors::{Metadata, SafeTensors, to_bytes};
use orlop_burn::{Error, from_data, into_bytes, share};

fn on(context: &Context) -> TensorOptions<'_> {
    TensorOptions::new().context(context)
}

/// burn computes on the bytes of a mapped file, and copies them before it writes.
#[test]
fn mapped_weights_are_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let weight = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap().view([2, 2]).unwrap();
    std::fs::write(&path, to_bytes([("w", &weight)], &Metadata::new()).unwrap()).unwrap();
    // SAFETY: nothing else knows of the file.
    let file = unsafe { SafeTensors::map(&path) }.unwrap();
    let mapped = file.tensor("w").unwrap();
    let data = share(mapped).unwrap();
    assert_eq!(
        data.as_bytes().as_ptr(),
        mapped.view_dtype(DType::U8).unwrap().as_slice::<u8>().unwrap().as_ptr()
    );
    let device = Default::default();
    let tensor = BurnTensor::<2>::from_data(data, &device);
    let product = tensor.clone().matmul(tensor.clone()) + 1.0;
    assert_eq!(product.into_data().as_slice::<f32>().unwrap(), &[8.0, 11.0, 16.0, 23.0]);
    assert_eq!(tensor.into_data().as_slice::<f32>().unwrap(), &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(mapped.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

/// A block is counted until burn drops it, and burn writes it in place.
#[test]
fn a_block_is_moved_and_returns() {
    let context = Context::new();
    let live = || context.memory_map().live(MemoryKind::Workspace);
    let tensor = Tensor::ones([256], on(&context).kind(MemoryKind::Workspace).dtype(DType::F32)).unwrap();
    let address = tensor.as_slice::<f32>().unwrap().as_ptr();
    let mut data = into_bytes(tensor).unwrap();
    assert_eq!(live(), 1024);
    data.as_mut_slice::<f32>().unwrap()[3] = 5.0;
    assert_eq!(data.as_slice::<f32>().unwrap().as_ptr(), address);
    let copy = data.clone();
    assert_ne!(copy.as_slice::<f32>().unwrap().as_ptr(), address);
    drop(data);
    assert_eq!((live(), copy.as_slice::<f32>().unwrap()[3]), (0, 5.0));
}

#[test]
fn what_is_shared_is_not_moved() {
    let tensor = Tensor::from_slice(&[1i64, 2, 3]).unwrap();
    let other = tensor.clone();
    let refused = into_bytes(tensor).unwrap_err();
    assert!(matches!(refused.source, Error::Shared));
    drop(other);
    let data = into_bytes(refused.tensor).unwrap();
    let bytes = data.as_slice::<i64>().unwrap().as_ptr();
    let back = from_data(data).unwrap();
    assert_eq!(
        (back.as_slice::<i64>().unwrap().as_ptr(), back.to_vec::<i64>().unwrap()),
        (bytes, vec![1, 2, 3])
    );
    assert!(back.fill_(0).is_err());
}

/// Strided tensors, dtypes that burn lacks, and data that is not what it says are refused.
#[test]
fn unfit_memory_is_refused() {
    let strided = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap().view([2, 2]).unwrap().t().unwrap();
    assert!(matches!(share(&strided), Err(Error::Tensor(_))));
    // A refusal leaves the storage as it was.
    strided.fill_(0.0).unwrap();
    assert!(matches!(into_bytes(strided).unwrap_err().source, Error::Tensor(_)));
    let complex = Tensor::zeros([2], TensorOptions::new().dtype(DType::C64)).unwrap();
    assert!(matches!(share(&complex), Err(Error::DType(DType::C64))));
    let bool = BurnDType::Bool(burn_std::BoolStore::Native);
    let data = TensorData::from_bytes(Bytes::from_bytes_vec(vec![0, 2]), [2], bool);
    assert!(matches!(from_data(data), Err(Error::NotBool)));
    let file = Bytes::from_file("no-such-file", 4, 0);
    let lazy = TensorData::from_bytes(file, [1], BurnDType::F32);
    assert!(matches!(from_data(lazy), Err(Error::Access(_))));
}

/// Views, empty tensors and threads.
#[test]
fn parts_and_empty_tensors() {
    let rows = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap().view([2, 2]).unwrap();
    let second = share(&rows.select(0, 1).unwrap()).unwrap();
    drop(rows);
    let sum = std::thread::spawn(move || second.as_slice::<f32>().unwrap().iter().sum::<f32>());
    assert_eq!(sum.join().unwrap(), 7.0);
    let empty = || Tensor::empty([0, 3], TensorOptions::new().dtype(DType::F32)).unwrap();
    assert_eq!(share(&empty()).unwrap().num_elements(), 0);
    assert_eq!(into_bytes(empty()).unwrap().num_elements(), 0);
    let part = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap().narrow(0, 1, 2).unwrap();
    let data = into_bytes(part).unwrap();
    assert_eq!((data.as_slice::<f32>().unwrap(), data.as_bytes().len()), (&[2.0f32, 3.0][..], 8));
    assert!(matches!(data.into_bytes().property(), AllocationProperty::Other));
}

/// Another thread replaces the memory while it is moved.
#[test]
fn memory_that_is_replaced_meanwhile_is_not_moved() {
    for _ in 0..200 {
        let tensor = Tensor::zeros([4096], TensorOptions::new().dtype(DType::U8)).unwrap();
        let storage = tensor.storage().unwrap().clone();
        let other = std::thread::spawn(move || {
            let small = Tensor::zeros([16], TensorOptions::new().dtype(DType::U8)).unwrap();
            drop(storage.swap_data(small.storage().unwrap()));
        });
        match into_bytes(tensor) {
            Ok(data) => assert_eq!(data.as_bytes().iter().filter(|&&byte| byte == 0).count(), 4096),
            Err(refused) => {
                assert!(matches!(refused.source, Error::Shared | Error::Changed | Error::Tensor(_)))
            }
        }
        other.join().unwrap();
    }
}
