//! Destinations of files: links, pipes, devices, and files that must not be replaced.
#![cfg(all(unix, feature = "archive", feature = "npy", feature = "safetensors"))]

use orlop_core::DType;
use orlop_tensor::interchange::npy::npz::{self, Compression};
use orlop_tensor::interchange::{archive, npy, safetensors};
use orlop_tensor::{Result, Tensor};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;

fn numbers() -> Tensor {
    Tensor::arange(0.0, 5000.0, 1.0, DType::I32).expect("memory")
}

struct Format {
    name: &'static str,
    write: fn(&Path, &Tensor) -> Result<()>,
    read: fn(&Path) -> Result<Tensor>,
}

const FORMATS: [Format; 5] = [
    Format { name: "npy", write: |path, tensor| npy::write(path, tensor), read: |path| npy::read(path) },
    Format {
        name: "npz",
        write: |path, tensor| npz::write(path, [("it", tensor)], Compression::None),
        read: |path| Ok(npz::read(path)?.get("it").expect("written").clone()),
    },
    Format {
        name: "packed npz",
        write: |path, tensor| npz::write(path, [("it", tensor)], Compression::Deflate),
        read: |path| Ok(npz::read(path)?.get("it").expect("written").clone()),
    },
    Format {
        name: "archive",
        write: |path, tensor| archive::save(path, [("it", tensor)]),
        read: |path| Ok(archive::load(path)?.get("it").expect("written").clone()),
    },
    Format {
        name: "safetensors",
        write: |path, tensor| safetensors::save(path, [("it", tensor)], &safetensors::Metadata::new()),
        read: |path| Ok(safetensors::SafeTensors::read(path)?.tensor("it")?.clone()),
    },
];

impl Format {
    #[track_caller]
    fn check(&self, path: &Path) {
        let read = (self.read)(path).and_then(|tensor| tensor.to_vec::<i32>());
        assert!(read.as_ref().is_ok_and(|read| read.iter().copied().eq(0..5000)), "{}: {read:?}", self.name);
    }
}

#[test]
fn links_are_written_through() {
    for format in &FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        symlink("file", &link).unwrap();
        for _ in 0..2 {
            (format.write)(&link, &numbers()).unwrap();
            assert!(link.is_symlink() && !file.is_symlink(), "{}", format.name);
            format.check(&file);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "{}", format.name);
    }
}

#[test]
fn devices_stay_what_they_are() {
    for format in &FORMATS {
        (format.write)(Path::new("/dev/null"), &numbers()).unwrap();
        let null = fs::symlink_metadata("/dev/null").unwrap();
        assert!(null.file_type().is_char_device(), "{}", format.name);
    }
}

#[test]
fn pipes_are_written_into() {
    for format in &FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        let made = Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no mkfifo");
            return;
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(&pipe).unwrap());
            (format.write)(&pipe, &numbers()).unwrap();
            fs::write(&file, reader.join().unwrap()).unwrap();
        });
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "{}", format.name);
        format.check(&file);
    }
}

/// Existing contents of a redirected standard output stay, and later output is appended.
#[test]
fn the_standard_output_is_added_to() {
    const INSIDE: &str = "ORLOP_TEST_STANDARD_OUTPUT";
    if std::env::var_os(INSIDE).is_some() {
        npy::write("/dev/stdout", &numbers()).unwrap();
        return;
    }
    // This test runs again as a child process, whose harness writes to the standard output too.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writers::the_standard_output_is_added_to", "--nocapture"])
        .env(INSIDE, "1")
        .stdout(fs::File::create(&out).unwrap())
        .status();
    assert!(run.is_ok_and(|status| status.success()));
    let all = fs::read(&out).unwrap();
    let place = |what: &[u8]| all.windows(what.len()).position(|bytes| bytes == what);
    let places = [b"running 1 test", &b"\x93NUMPY"[..], b"test result"].map(place);
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

#[test]
fn what_is_not_to_be_written_is_refused_and_stays() {
    for format in &FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("folder");
        fs::create_dir(&inside).unwrap();
        assert!((format.write)(&inside, &numbers()).is_err() && inside.is_dir(), "{}", format.name);
        let file = folder.path().join("file");
        fs::write(&file, b"mine").unwrap();
        let mut permissions = fs::metadata(&file).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&file, permissions).unwrap();
        assert!((format.write)(&file, &numbers()).is_err(), "{}", format.name);
        // A write that fails halfway does not change the file, either.
        let other = folder.path().join("other");
        fs::write(&other, b"mine").unwrap();
        let tensor = numbers();
        let writing = tensor.as_mut_slice::<i32>().unwrap();
        assert!((format.write)(&other, &tensor).is_err(), "{}", format.name);
        drop(writing);
        assert_eq!(
            (fs::read(&file).unwrap(), fs::read(&other).unwrap()),
            (b"mine".to_vec(), b"mine".to_vec())
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "{}", format.name);
    }
}
