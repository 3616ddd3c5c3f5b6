//! Models that others made, against the sizes that their values have in other programs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[cfg(feature = "exec")]
mod execution;
mod golden;
#[cfg(feature = "plan-file")]
mod plan_file;
mod shipped;

use flate2::read::GzDecoder;
use std::fs::File;
use std::io::Read;

/// Returns a file of the folder `testdata`, unpacked.
fn testdata(name: &str) -> Vec<u8> {
    let path = format!("{}/../../testdata/{name}.gz", env!("CARGO_MANIFEST_DIR"));
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}
