//! Stand-ins are written, read back, and prepared for a folder of packages.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod hooks;
mod hostile;

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
fn an_output_that_the_loader_would_split_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a:b", "a;b", "$ORIGIN"] {
        let output = folder.path().join(name);
        let refused = Injection::prepare(folder.path(), &folder.path().join("library.so"), &output);
        assert!(matches!(refused, Err(DryRunError::UnusableOutput { .. })), "{name}");
        assert!(!output.exists());
    }
}

#[test]
fn the_library_of_an_earlier_run_can_be_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    write(&packages.join("torch.so"), &extension("cudaMalloc"));
    let (library, output) = (folder.path().join("library.so"), folder.path().join("output"));
    write(&library, &StandIn::new("library.so"));
    assert!(!Injection::is_prepared(&output));
    Injection::prepare(&packages, &library, &output).unwrap();
    assert!(Injection::is_prepared(&output));
    let copied = output.join("libraries/liborlop_dryrun_cuda.so");
    Injection::prepare(&packages, &copied, &output).unwrap();
    assert_eq!(fs::read(copied).unwrap(), fs::read(library).unwrap());
}

#[test]
fn linked_libraries_are_read_and_unreadable_folders_skipped() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (packages, cache) = (folder.path().join("packages"), folder.path().join("cache"));
    write(&cache.join("extension.so"), &extension("cudaMalloc"));
    let hidden = packages.join("hidden");
    fs::create_dir_all(&hidden).unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).unwrap();
    symlink(cache.join("extension.so"), packages.join("extension.so")).unwrap();
    symlink(cache.join("missing.so"), packages.join("missing.so")).unwrap();
    symlink(&packages, packages.join("circle")).unwrap();
    let library = folder.path().join("library.so");
    write(&library, &StandIn::new("library.so"));
    let injection = Injection::prepare(&packages, &library, &folder.path().join("output"));
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(injection.unwrap().libraries().contains(&"libcudart.so.13".to_owned()));
}

#[test]
fn a_name_that_leaves_the_folder_is_no_library_of_nvidia() {
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    let extension = extension("cudaMalloc").needs("libcudart.so/../../outside");
    write(&packages.join("torch.so"), &extension);
    let library = folder.path().join("library.so");
    write(&library, &StandIn::new("library.so"));
    let injection = Injection::prepare(&packages, &library, &folder.path().join("output")).unwrap();
    assert_eq!(injection.libraries()[2..], ["libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1"]);
}

#[test]
fn packages_without_cuda_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("library.so");
    write(&library, &StandIn::new("library.so"));
    let refused = Injection::prepare(folder.path(), &library, &folder.path().join("output"));
    assert!(matches!(refused, Err(DryRunError::NoCudaTorch { .. })));
}
