//! Safetensors files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_tensor::interchange::safetensors::{SafeTensors, ShardIndex};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = SafeTensors::from_bytes(bytes) {
        for (_, tensor) in file.iter() {
            let _ = tensor.to_string();
        }
    }
    let _ = ShardIndex::from_bytes(bytes);
});
