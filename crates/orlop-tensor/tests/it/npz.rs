//! `.npz` files: NumPy's, orlop's, damaged ones, and zip bombs.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::cases::{cases, damages, elements, in_little_memory};
use crate::npy::{NAMED, data, npy_error, zero_to_five};
use orlop_core::{DType, MemoryKind};
use orlop_tensor::interchange::npy::npz::{self, Compression, NpzReader};
use orlop_tensor::interchange::npy::{self, NpyError, ReadOptions};
use orlop_tensor::{Error, Tensor};
use proptest::prelude::*;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

fn refusal<T>(result: orlop_tensor::Result<T>) -> NpyError {
    npy_error(result.err().unwrap())
}

fn written(tensors: &[(&str, &Tensor)], compression: Compression) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    npz::write_to(&mut file, tensors.iter().copied(), compression).unwrap();
    file.into_inner()
}

/// Returns an archive with these entries, valid or not.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        archive.start_file(*name, SimpleFileOptions::DEFAULT).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn what_numpy_wrote() {
    for (name, arrays) in
        [("dtypes.npz", NAMED.len()), ("compressed.npz", NAMED.len() + 1), ("big-endian.npz", NAMED.len())]
    {
        let tensors = npz::read(data(name)).unwrap();
        assert_eq!(tensors.len(), arrays);
        for &dtype in NAMED {
            let tensor = tensors.get(dtype.name()).unwrap();
            assert_eq!((tensor.dtype(), tensor.sizes()), (dtype, &[2, 3][..]), "{name}");
            let expected = match dtype {
                DType::C64 | DType::C128 => {
                    let numbers = (0..6u8)
                        .map(|number| orlop_core::Complex::new(f64::from(number), -f64::from(number)));
                    Tensor::from_slice(&numbers.collect::<Vec<_>>()).unwrap().to_dtype(dtype).unwrap()
                }
                _ => zero_to_five(dtype),
            };
            assert_eq!(numbers(tensor), numbers(&expected), "{name}: {dtype}");
        }
    }
}

/// Returns the elements as numbers of the widest type.
fn numbers(tensor: &Tensor) -> Vec<orlop_core::Complex<f64>> {
    tensor.to_dtype(DType::C128).unwrap().to_vec().unwrap()
}

#[test]
fn what_tensors_do_not_have_is_refused_by_name() {
    assert!(matches!(refusal(npz::read(data("refused.npz"))), NpyError::Entry { .. }));
    let mut file = NpzReader::open(data("refused.npz")).unwrap();
    let names: Vec<String> = file.names().map(String::from).collect();
    let mut refused = Vec::new();
    for name in names {
        let NpyError::Entry { name: at_fault, source } = refusal(file.read(&name)) else { panic!("{name}") };
        assert_eq!(*at_fault, *name);
        refused.push(match *source {
            NpyError::UnsupportedDType { descr } => String::from(descr),
            NpyError::StructuredDType => "structure".to_owned(),
            error => panic!("{name}: {error}"),
        });
    }
    assert_eq!(refused, ["|O", "<U2", "|S2", "<M8[D]", "<m8[ns]", "<f16", "|V2", "structure"]);
}

#[test]
fn arrays_are_read_one_by_one() {
    let refused = refusal(npz::read(data("mixed.npz")));
    assert!(matches!(refused, NpyError::NotAnArray { name } if *name == *"notes.txt"));
    let mut file = NpzReader::open(data("mixed.npz")).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["array"]);
    assert_eq!(file.read("array").unwrap().to_vec::<u8>().unwrap(), [0, 1, 2, 3, 4, 5]);
    let error = file.read("arrya").unwrap_err().to_string();
    let path = data("mixed.npz");
    assert_eq!(error, format!("{} has no tensor `arrya`", path.display()));
    let error = file.read("arrays").unwrap_err();
    assert!(matches!(&error, Error::NoSuchTensor(missing) if missing.nearest.as_deref() == Some("array")));
    assert!(error.to_string().ends_with(" has no tensor `arrays`; the nearest name is `array`"), "{error}");
}

#[test]
fn files_are_replaced_whole_and_always_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tensors.npz");
    let (a, b) = (zero_to_five(DType::F32), zero_to_five(DType::U8).t().unwrap());
    for compression in [Compression::None, Compression::Deflate] {
        npz::write(&path, [("layer/b", &b), ("a", &a)], compression).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), written(&[("layer/b", &b), ("a", &a)], compression));
        let again = npz::read_with(&path, &ReadOptions::new().kind(MemoryKind::Persistent)).unwrap();
        assert_eq!(again.names().collect::<Vec<_>>(), ["layer/b", "a"]);
        assert_eq!(again.get("layer/b").unwrap().strides(), b.strides());
        assert!(again.iter().all(|(_, tensor)| tensor.memory_kind() == MemoryKind::Persistent));
        // What was read can be written back.
        npz::write(&path, &again, compression).unwrap();
    }
    let refused = npz::write(&path, [("a", &a), ("a", &b)], Compression::None);
    assert!(matches!(refusal(refused), NpyError::DuplicateName { name } if *name == *"a"));
    let refused = npz::write(&path, [("x", zero_to_five(DType::F8E5M2))], Compression::None);
    let NpyError::Entry { source, .. } = refusal(refused) else { panic!() };
    assert!(matches!(*source, NpyError::NoDescr { .. }));
    let refused = npz::write(&path, [("x".repeat(70_000), &a)], Compression::None);
    assert!(matches!(refusal(refused), NpyError::NameTooLong { .. }));
    assert_eq!(npz::read(&path).unwrap().len(), 2);
}

/// The archive's reader silently keeps the last entry of a name; here that is an error.
#[test]
fn one_name_twice_is_refused() {
    let (a, b) = (zero_to_five(DType::I64), Tensor::zeros([2], DType::U8).unwrap());
    for compression in [Compression::None, Compression::Deflate] {
        let mut bytes = written(&[("first", &a), ("other", &b), ("third", &a)], compression);
        // In the entry's own header and in the directory.
        for at in 0..bytes.len() - 9 {
            if bytes[at..at + 9] == *b"third.npy" {
                bytes[at..at + 9].copy_from_slice(b"first.npy");
            }
        }
        let refused = [
            refusal(npz::from_bytes(&bytes, &ReadOptions::new())),
            refusal(NpzReader::new(Cursor::new(&bytes), &ReadOptions::new())),
        ];
        for refused in refused {
            assert!(matches!(&refused, NpyError::DuplicateName { name } if **name == *"first"), "{refused}");
        }
    }
    // Another name, and a comment that looks like an entry.
    let entries: [(&str, &[u8]); 2] = [("a.npy", &[]), ("./a.npy", &[])];
    assert!(NpzReader::new(Cursor::new(archive(&entries)), &ReadOptions::new()).is_ok());
}

#[test]
fn limits() {
    let zeros = Tensor::zeros([1 << 20], DType::F64).unwrap();
    let packed = written(&[("a", &zeros), ("b", &zeros)], Compression::Deflate);
    assert!(packed.len() < 1 << 16);
    let options = ReadOptions::new().max_bytes(12 << 20);
    assert!(matches!(refusal(npz::from_bytes(&packed, &options)), NpyError::TooLarge { .. }));
    // One of them alone is within the limit.
    let one = NpzReader::new(Cursor::new(&packed), &options).unwrap().read("b").unwrap();
    assert_eq!(one.numel(), 1 << 20);
    let options = ReadOptions::new().max_entries(1);
    assert!(matches!(
        refusal(npz::from_bytes(&packed, &options)),
        NpyError::TooManyEntries { entries: 2, limit: 1 }
    ));
    // Uncompressed arrays are bounded by the file, so the limit does not apply.
    let stored = written(&[("a", &zeros), ("b", &zeros)], Compression::None);
    assert_eq!(npz::from_bytes(&stored, &ReadOptions::new().max_bytes(0)).unwrap().len(), 2);
}

/// Sets the size of the entry in the directory to `bytes`.
fn claim(archive: &mut [u8], bytes: u32) {
    let entry = archive.windows(4).rposition(|signature| signature == b"PK\x01\x02").unwrap();
    archive[entry + 24..entry + 28].copy_from_slice(&bytes.to_le_bytes());
}

#[test]
fn entries_that_lie() {
    let array = npy::to_bytes(&zero_to_five(DType::F32)).unwrap();
    let entry = |bytes: &[u8]| {
        let refused = refusal(npz::from_bytes(&archive(&[("a.npy", bytes)]), &ReadOptions::new()));
        let NpyError::Entry { source, .. } = refused else { panic!("{refused}") };
        *source
    };
    assert!(matches!(entry(&array[..150]), NpyError::Truncated { expected: 24, actual: 22 }));
    assert!(matches!(entry(&[&array[..], b"more"].concat()), NpyError::TrailingBytes { expected: 24 }));
    assert!(matches!(entry(b"no array"), NpyError::NotNpy));
    // A header and a directory that agree on 4 GB, without the data.
    let mut header = npy::to_bytes(&Tensor::zeros([0, 0], DType::U8).unwrap()).unwrap();
    let place = header.windows(6).position(|text| text == b"(0, 0)").unwrap();
    header.splice(place..place + 6, *b"(1, 4000000000)");
    header.drain(place + 20..place + 29);
    let mut bomb = archive(&[("a.npy", &header)]);
    claim(&mut bomb, 4_000_000_000 + u32::try_from(header.len()).unwrap());
    let refused = refusal(in_little_memory(|| npz::from_bytes(&bomb, &ReadOptions::new())));
    let NpyError::Entry { source, .. } = refused else { panic!("{refused}") };
    assert!(matches!(*source, NpyError::Truncated { expected: 4_000_000_000, actual: 0 }), "{source}");
    // A changed byte in the data.
    let mut changed = written(&[("a", &zero_to_five(DType::F32))], Compression::None);
    let place = changed.windows(6).position(|bytes| bytes == b"\x93NUMPY").unwrap() + array.len() - 1;
    changed[place] ^= 1;
    let refused = refusal(npz::from_bytes(&changed, &ReadOptions::new()));
    assert!(refused.to_string().contains("checksum"), "{refused}");
}

#[test]
fn entries_that_overlap() {
    let (a, b) = (Tensor::zeros([100], DType::U8).unwrap(), Tensor::zeros([100], DType::U8).unwrap());
    let mut file = written(&[("a", &a), ("b", &b)], Compression::None);
    // Both entries of the directory point to the same bytes, so their sum exceeds the file.
    let second = file.windows(4).rposition(|signature| signature == b"PK\x01\x02").unwrap();
    file[second + 42..second + 46].fill(0);
    let first = file.windows(4).position(|signature| signature == b"PK\x01\x02").unwrap();
    let end = u32::try_from(file.len() - 100).unwrap().to_le_bytes();
    for entry in [first, second] {
        file[entry + 20..entry + 24].copy_from_slice(&end);
        file[entry + 24..entry + 28].copy_from_slice(&end);
    }
    let refused = refusal(npz::from_bytes(&file, &ReadOptions::new()));
    assert!(matches!(refused, NpyError::OverlappingEntries { .. }), "{refused}");
}

#[test]
fn what_is_no_archive() {
    for bytes in [&b""[..], b"PK", &[0; 100]] {
        assert!(matches!(refusal(npz::from_bytes(bytes, &ReadOptions::new())), NpyError::Zip { .. }));
    }
    let error = refusal(npz::read(data("none.npz")));
    assert!(matches!(error, NpyError::Io { .. }), "{error}");
    assert!(npz::from_bytes(&archive(&[]), &ReadOptions::new()).unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trip(cases in prop::collection::vec(cases(NAMED), 0..4), deflate in any::<bool>()) {
        let tensors: Vec<(String, Tensor)> =
            cases.iter().enumerate().map(|(index, case)| (format!("{index}"), case.tensor())).collect();
        let borrowed: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (&**name, tensor)).collect();
        let bytes = written(&borrowed, if deflate { Compression::Deflate } else { Compression::None });
        let again = npz::from_bytes(&bytes, &ReadOptions::new()).unwrap();
        prop_assert_eq!(again.len(), tensors.len());
        for ((name, tensor), (name_again, tensor_again)) in tensors.iter().zip(&again) {
            prop_assert_eq!(&**name, name_again);
            prop_assert_eq!((tensor.dtype(), tensor.shape()), (tensor_again.dtype(), tensor_again.shape()));
            prop_assert_eq!(elements(tensor), elements(tensor_again));
        }
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        cases in prop::collection::vec(cases(NAMED), 1..3),
        deflate in any::<bool>(),
        damage in damages(),
    ) {
        let tensors: Vec<(String, Tensor)> =
            cases.iter().enumerate().map(|(index, case)| (format!("{index}"), case.tensor())).collect();
        let borrowed: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (&**name, tensor)).collect();
        let bytes = written(&borrowed, if deflate { Compression::Deflate } else { Compression::None });
        let bytes = damage.of(&bytes);
        let _ = in_little_memory(|| npz::from_bytes(&bytes, &ReadOptions::new()));
    }
}
