//! Safetensors files: round trips, mapping, malformed files, shards.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod heap;
mod hostile;
mod in_place;
mod malformed;
mod round_trip;
mod shards;

use orlop_tensor::Error;
use orlop_tensor::interchange::safetensors::{Flaw, SafetensorsError};

/// Returns a file with this header.
fn file(json: &str, data: &[u8]) -> Vec<u8> {
    let length = u64::try_from(json.len()).unwrap().to_le_bytes();
    [&length[..], json.as_bytes(), data].concat()
}

/// Returns the flaw of a rejected file.
fn flaw<T: std::fmt::Debug>(result: orlop_tensor::Result<T>) -> Flaw {
    match result.unwrap_err() {
        Error::Safetensors(SafetensorsError::Malformed { flaw, .. }) => *flaw,
        error => panic!("{error}"),
    }
}
