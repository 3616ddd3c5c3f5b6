//! `.npy` files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_tensor::interchange::npy;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensor) = npy::from_bytes(bytes) {
        let _ = tensor.to_string();
    }
});
