//! Every error that can wrap an out-of-memory error says so.

use orlop_alloc::{Error as AllocError, OutOfMemory, Refusal, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{BindError, Error, Storage, Tensor, TensorOptions};

fn refused() -> AllocError {
    OutOfMemory::new(Refusal::Limit, "test", Device::CPU, &Request::new(1)).into()
}

#[test]
fn errors_say_whether_memory_is_missing() {
    assert!(Error::from(refused()).is_out_of_memory());
    let io = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    assert!(Error::from(AllocError::backend_out_of_memory(io)).is_out_of_memory());
    assert!(!Error::from(AllocError::NoRawDeleter).is_out_of_memory());
    assert!(!Error::Undefined.is_out_of_memory());
    let block = Storage::new(1, &TensorOptions::new()).unwrap().into_block().unwrap();
    let bind = BindError { block, source: Error::from(refused()) };
    assert!(bind.is_out_of_memory());
}

#[test]
fn a_device_without_a_backend_is_an_error_that_says_what_to_do() {
    let options = TensorOptions::from(DType::F32).device(Device::cuda(0));
    for error in [
        Tensor::zeros([1], options).unwrap_err().to_string(),
        Context::new().ops(Device::cuda(0)).unwrap_err().to_string(),
        Context::new().allocator(Device::cuda(0), MemoryKind::Default).unwrap_err().to_string(),
    ] {
        assert!(error.contains("cuda:0") && error.contains("feature `cuda`"), "{error}");
        assert!(error.contains("install"), "{error}");
    }
}
