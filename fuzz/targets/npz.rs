//! `.npz` files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_tensor::interchange::npy::{ReadOptions, npz};

fuzz_target!(|bytes: &[u8]| {
    let _ = npz::from_bytes(bytes, &ReadOptions::new().max_bytes(1 << 20));
});
