//! Stand-ins are written, read back, and prepared for a folder of packages.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use orlop_dryrun::DryRunError;
use orlop_dryrun::elf::{LibraryFile, StandIn};
use orlop_dryrun::gpu::GpuModel;
use orlop_dryrun::injection::Injection;
use orlop_dryrun::settings::DryRunSettings;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

fn write(path: &Path, library: &StandIn) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders can be made");
    fs::write(path, library.to_bytes()).expect("files can be written");
}

/// A library that needs CUDA's runtime and imports one of its functions.
fn extension(import: &str) -> StandIn {
    StandIn::new("extension.so").needs("libcudart.so.13").functions(import, ["torch_function".to_owned()])
}

#[test]
fn a_stand_in_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libfake.so.1");
    let library = StandIn::new("libfake.so.1").needs("libother.so").versions(["FAKE_1".to_owned()]);
    write(&path, &library.functions("answer", ["one".to_owned(), "two".to_owned()]));
    let read = LibraryFile::read(&path).unwrap();
    assert_eq!(read.needed, ["libother.so"]);
    assert_eq!(read.exports, ["one", "two"]);
    assert_eq!((read.imports.len(), &*read.imports[0].name), (1, "answer"));
    fs::write(&path, b"INPUT(libfake.so.2)").unwrap();
    assert!(matches!(LibraryFile::read(&path), Err(DryRunError::NotALibrary { .. })));
    assert!(matches!(LibraryFile::read(folder.path()), Err(DryRunError::Read { .. })));
}

#[test]
fn each_truncation_of_a_library_is_an_error_or_a_library() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.so");
    let bytes = extension("cudaMalloc").to_bytes();
    for length in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        let _ = LibraryFile::read(&path);
    }
    fs::write(&path, &bytes[..2000.min(bytes.len() - 1)]).unwrap();
    assert!(LibraryFile::read(&path).is_err());
}

#[test]
fn packages_with_cuda_get_stand_ins_for_what_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    write(&packages.join("torch/lib/libtorch_cuda.so"), &extension("cudaNewFunction"));
    write(&packages.join("other/extension.so"), &extension("cudaMalloc").needs("libnccl.so.2"));
    // NVIDIA's own packages are what is replaced, not what is served.
    write(&packages.join("nvidia/lib/libcudnn.so.9"), &extension("cudaInternal").needs("libcublas.so.13"));
    let library = folder.path().join("liborlop_dryrun_cuda.so");
    write(&library, &StandIn::new("liborlop_dryrun_cuda.so").functions("answer", ["cudaMalloc".to_owned()]));
    let output = folder.path().join("output");
    let injection = Injection::prepare(&packages, &library, &output).unwrap();
    assert_eq!(injection.others(), 1);
    let stand_ins = ["libcuda.so.1", "libcudart.so.13", "libnccl.so.2", "libnvidia-ml.so.1"];
    assert_eq!(injection.libraries()[2..], stand_ins);
    let others = LibraryFile::read(&output.join("libraries").join(&injection.libraries()[1])).unwrap();
    assert_eq!(others.exports, ["cudaNewFunction"]);
    let settings = DryRunSettings::new(GpuModel::named("t4").unwrap());
    let variables: HashMap<_, _> = injection.variables(&settings).into_iter().collect();
    assert_eq!(variables["ORLOP_DRY_RUN"], "1");
    assert!(variables["LD_PRELOAD"].to_string_lossy().contains(":libcudart.so.13:"));
}

#[test]
fn packages_without_cuda_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("library.so");
    write(&library, &StandIn::new("library.so"));
    let refused = Injection::prepare(folder.path(), &library, &folder.path().join("output"));
    assert!(matches!(refused, Err(DryRunError::NoCudaTorch { .. })));
}
