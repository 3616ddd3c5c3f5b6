//! What mutations begin with: files of the repository, packed ones also unpacked, and what orlop itself
//! writes.

use super::LONGEST;
use flate2::read::GzDecoder;
use orlop::tensor::Tensor;
use orlop::tensor::interchange::{archive, npy, safetensors};
use orlop::trace::formats::binary;
use orlop::trace::history::History;
use orlop::types::{DType, MemoryFormat};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of packed files, and of what is unpacked.
const SMALL: u64 = 8 << 10;

/// Those of a reader, none longer than [`LONGEST`].
pub(crate) fn of(name: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut seeds: Vec<Vec<u8>> = match name {
        "archive" => {
            vec![archive::to_bytes(tensors()).expect("an archive")]
        }
        "npy" => [of_folder("crates/orlop-tensor/tests/data/npy", "npy"), vec![whole()]].concat(),
        "npz" => of_folder("crates/orlop-tensor/tests/data/npy", "npz"),
        "onnx" => {
            let small = of_folder("crates/orlop-onnx/tests/data/onnx", "onnx");
            [of_folder("testdata/onnx", "gz"), of_folder("testdata/onnx-wild", "gz"), small].concat()
        }
        "plan_csv" => {
            [of_folder("testdata/plan/minimalloc", "gz"), of_folder("testdata/plan/idealloc", "gz")].concat()
        }
        "safetensors" => {
            let index = br#"{"metadata":{"total_size":8},"weight_map":{"a":"m-1.safetensors"}}"#;
            vec![safetensors::to_bytes(tensors(), &BTreeMap::new()).expect("a file"), index.to_vec()]
        }
        // Traces of a profiler are JSON, too.
        "snapshot" => {
            let traces = of_folder("testdata/traces", "json");
            [snapshots(), of_folder("testdata/torch-snapshots", "gz"), traces].concat()
        }
        "trace" => of_folder("testdata", "gz"),
        "trace_binary" => {
            let traces = [snapshots(), of_folder("testdata/traces", "json")].concat();
            traces.iter().map(|trace| packed(trace)).collect()
        }
        "trace_chrome" => of_folder("testdata/traces", "json"),
        "trace_csv" => {
            let history = History::parse(&snapshots()[0][..]).expect("a snapshot");
            let mut lines = Vec::new();
            orlop::trace::formats::csv::write_csv(&history, &mut lines).expect("memory takes it");
            vec![lines]
        }
        "trace_pprof" => of_folder("testdata/traces", "gz"),
        "trace_rmm" => of_folder("testdata/traces", "csv"),
        "torch_conf" => texts(&[
            "max_split_size_mb:128,garbage_collection_threshold:0.8,expandable_segments:True",
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native",
            "roundup_power2_divisions:4,pinned_num_register_threads:8,per_process_memory_fraction:0.5",
        ]),
        "words" => texts(&[
            "8GiB\n1.5 MB\n0\nfloat32\nbf16\ncomplex64\nfloat8_e4m3fn\ncpu\ncuda:3\nkv_cache\nworkspace\n\
             channels_last",
        ]),
        other => panic!("no seeds for {other}"),
    };
    for seed in &mut seeds {
        seed.truncate(LONGEST);
    }
    seeds
}

fn tensors() -> [(&'static str, Tensor); 3] {
    let matrix = Tensor::arange(0.0, 12.0, 1.0, DType::F32).expect("memory");
    let matrix = matrix.view([3, 4]).expect("twelve elements");
    let row = matrix.select(0, 1).expect("three rows");
    let flags = Tensor::full([5], 1, DType::Bool).expect("memory");
    [("matrix", matrix), ("row", row.contiguous(MemoryFormat::Contiguous).expect("memory")), ("flags", flags)]
}

fn whole() -> Vec<u8> {
    npy::to_bytes(&tensors()[0].1).expect("memory takes it")
}

fn snapshots() -> Vec<Vec<u8>> {
    let folder = "crates/orlop-trace/tests/data/snapshot";
    [of_folder(folder, "pickle"), of_folder(folder, "json")].concat()
}

/// A recording in the binary format.
fn packed(recording: &[u8]) -> Vec<u8> {
    let history = History::parse(recording).expect("a recording");
    let mut bytes = Vec::new();
    binary::write_binary(&history, &mut bytes).expect("memory takes it");
    bytes
}

/// The files with this extension, in the order of their names.
fn of_folder(folder: &str, extension: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths.iter().flat_map(|path| both(fs::read(path).expect("a file"))).collect()
}

/// As it is; a packed one unpacked, its beginning, and as it is only if it is small: the rest costs time and
/// says nothing new.
fn both(file: Vec<u8>) -> Vec<Vec<u8>> {
    if !file.starts_with(&[0x1f, 0x8b]) {
        return vec![file];
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&file[..]).take(SMALL).read_to_end(&mut unpacked).expect("a packed file");
    let is_small = u64::try_from(file.len()).is_ok_and(|length| length <= SMALL);
    if is_small { vec![file, unpacked] } else { vec![unpacked] }
}
