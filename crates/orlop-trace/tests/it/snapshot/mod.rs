//! Memory snapshots: the shipped ones, their state at the start, writing and reading both formats, and
//! malicious files.

mod hostile;
mod round_trip;
mod shipped;
mod start;
mod torch_rules;

use flate2::read::GzDecoder;
use orlop_trace::history::History;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// The files of real runs.
const GPT: [&str; 4] = [
    "gpt-medium_128_training",
    "gpt-medium_512_training",
    "gpt-medium_256_inference",
    "gpt-medium_512_inference",
];

const MADE_UP: &str = "mosaic-sample";

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/torch-snapshots");
    PathBuf::from(folder).join(format!("{name}.pickle.gz"))
}

fn read(name: &str) -> History {
    History::read(path(name)).expect("it is shipped")
}

/// The decompressed pickle.
fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path(name)).expect("it is shipped");
    GzDecoder::new(file).read_to_end(&mut bytes).expect("it is whole");
    bytes
}
