//! Archives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_tensor::interchange::archive;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensors) = archive::from_bytes(bytes) {
        let _ = archive::to_bytes(&tensors);
    }
});
