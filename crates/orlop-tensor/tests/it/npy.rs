//! `.npy` files: NumPy's, orlop's, and damaged ones.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::cases::{cases, damages, elements, in_little_memory};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::interchange::npy::{self, NpyError, ReadOptions};
use orlop_tensor::{Error, Tensor};
use proptest::prelude::*;
use std::io::Read;
use std::path::PathBuf;

/// The dtypes that the format can express.
pub(crate) const NAMED: &[DType] = &[
    DType::Bool,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

pub(crate) fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", "npy", name].iter().collect()
}

/// Returns 0 to 5 in two rows, as the test data has them.
pub(crate) fn zero_to_five(dtype: DType) -> Tensor {
    Tensor::arange(0.0, 6.0, 1.0, DType::F64).unwrap().view([2, 3]).unwrap().to_dtype(dtype).unwrap()
}

pub(crate) fn npy_error(error: Error) -> NpyError {
    match error {
        Error::Npy(error) => error,
        error => panic!("{error}"),
    }
}

fn refusal(result: orlop_tensor::Result<Tensor>) -> NpyError {
    npy_error(result.err().unwrap())
}

#[test]
fn what_numpy_wrote() {
    let tensor = npy::read(data("row-major.npy")).unwrap();
    assert_eq!((tensor.sizes(), tensor.is_contiguous()), (&[2, 3][..], true));
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let columns = npy::read(data("column-major.npy")).unwrap();
    assert_eq!(
        (columns.sizes(), &**columns.strides(), columns.dtype()),
        (&[2, 3][..], &[1, 2][..], DType::C64)
    );
    let real: Vec<f32> =
        columns.iter::<orlop_core::Complex<f32>>().unwrap().map(|number| number.re).collect();
    assert_eq!(real, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let scalar = npy::read(data("scalar.npy")).unwrap();
    assert_eq!((scalar.ndim(), scalar.item::<f64>().unwrap()), (0, 1.5));
    let empty = npy::read(data("empty.npy")).unwrap();
    assert_eq!((empty.sizes(), empty.dtype()), (&[3, 0, 2][..], DType::I64));
    for version in ["version-2.npy", "version-3.npy"] {
        assert_eq!(npy::read(data(version)).unwrap().to_vec::<u16>().unwrap(), [0, 1, 2, 3, 4, 5]);
    }
}

/// The file is the same, not just the array.
#[test]
fn what_is_written_is_what_numpy_writes() {
    let files = ["row-major.npy", "column-major.npy", "line.npy", "scalar.npy", "empty.npy", "bool.npy"];
    for name in files {
        let bytes = std::fs::read(data(name)).unwrap();
        let tensor = npy::from_bytes(&bytes).unwrap();
        assert_eq!(npy::to_bytes(&tensor).unwrap(), bytes, "{name}");
    }
}

#[test]
fn arrays_one_after_the_other() {
    let bytes = std::fs::read(data("several.npy")).unwrap();
    let mut rest = &bytes[..];
    assert_eq!(npy::read_from(&mut rest).unwrap().dtype(), DType::I32);
    assert_eq!(npy::read_from(&mut rest).unwrap().to_vec::<f64>().unwrap()[5], 5.0);
    assert!(rest.is_empty());
    assert!(matches!(refusal(npy::read_from(&mut rest)), NpyError::ShortHeader));
    assert!(matches!(refusal(npy::from_bytes(&bytes)), NpyError::TrailingBytes { expected: 24 }));
}

#[test]
fn files_are_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tensor.npy");
    npy::write(&path, &zero_to_five(DType::I16)).unwrap();
    let refused = npy::write(&path, &zero_to_five(DType::BF16)).unwrap_err();
    assert!(refused.to_string().contains("to_dtype"), "{refused}");
    assert!(matches!(npy_error(refused), NpyError::NoDescr { dtype: DType::BF16 }));
    assert!(matches!(npy::write(&path, &Tensor::undefined()), Err(Error::Undefined)));
    assert_eq!(npy::read(&path).unwrap().to_vec::<i16>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let missing = folder.path().join("none").join("tensor.npy");
    for error in [npy::read(&missing).err(), npy::write(&missing, &zero_to_five(DType::U8)).err()] {
        let NpyError::Io { path, .. } = npy_error(error.unwrap()) else { panic!() };
        assert_eq!(*path, *missing);
    }
}

#[test]
fn memory_of_a_kind() {
    let options = ReadOptions::new().kind(MemoryKind::Persistent);
    let tensor = npy::read_with(data("row-major.npy"), &options).unwrap();
    assert_eq!((tensor.memory_kind(), tensor.device()), (MemoryKind::Persistent, Device::CPU));
}

#[test]
fn bools_are_zero_or_one() {
    let mut bytes = std::fs::read(data("bool.npy")).unwrap();
    *bytes.last_mut().unwrap() = 7;
    let tensor = npy::from_bytes(&bytes).unwrap();
    assert_eq!(tensor.storage().unwrap().read().unwrap()[..], [1, 0, 1]);
    tensor.storage().unwrap().write().unwrap()[0] = 9;
    assert_eq!(npy::to_bytes(&tensor).unwrap(), std::fs::read(data("bool.npy")).unwrap());
}

#[test]
fn malformed_headers_are_errors() {
    let bytes = std::fs::read(data("row-major.npy")).unwrap();
    let read = |from: &[u8], to: &[u8]| {
        let place = bytes.windows(from.len()).position(|text| text == from).unwrap();
        let rest = &bytes[place + from.len()..];
        refusal(npy::from_bytes(&[&bytes[..place], to, rest].concat()))
    };
    assert!(matches!(read(b"NUMPY", b"numpy"), NpyError::NotNpy));
    assert!(matches!(read(b"NUMPY\x01", b"NUMPY\x04"), NpyError::UnknownVersion { major: 4, minor: 0 }));
    assert!(matches!(read(b"v\0{", b"\xff\xff{"), NpyError::ShortHeader));
    assert!(matches!(read(b"\x01\0v\0", b"\x02\0\xff\xff\xff\xff"), NpyError::HeaderTooLong { .. }));
    assert!(matches!(read(b"(2, 3)", b"(2, 4)"), NpyError::Truncated { expected: 32, actual: 24 }));
    assert!(matches!(read(b"(2, 3)", b"(2, 2)"), NpyError::TrailingBytes { expected: 16 }));
    assert!(matches!(read(b"(2, 3)", b"(2 ,3 "), NpyError::Header { .. }));
    assert!(matches!(read(b"<f4", b"|O4"), NpyError::UnsupportedDType { descr } if *descr == *"|O4"));
    assert!(matches!(
        read(b"descr", b"dtype"),
        NpyError::Header { expected: "one of the remaining keys", .. }
    ));
    assert!(matches!(refusal(npy::from_bytes(&bytes[..100])), NpyError::ShortHeader));
    assert!(matches!(refusal(npy::from_bytes(b"")), NpyError::ShortHeader));
}

#[test]
fn streams_have_a_limit_and_files_their_length() {
    let bytes = npy::to_bytes(&Tensor::zeros([1000], DType::F64).unwrap()).unwrap();
    let options = ReadOptions::new().max_bytes(7999);
    let refused = refusal(npy::read_from_with(&mut &bytes[..], &options));
    assert!(matches!(refused, NpyError::TooLarge { bytes: 8000, limit: 7999 }));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tensor.npy");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(npy::read_with(&path, &options).unwrap().numel(), 1000);
}

/// The header states 64 TiB, and no data follows.
#[test]
fn nothing_is_allocated_for_what_does_not_come() {
    let mut header = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (8796093022208,), }";
    header.extend(format!("{text:<117}\n").bytes());
    let options = ReadOptions::new().max_bytes(u64::MAX);
    let read = || npy::read_from_with(&mut header.as_slice().chain(&[0u8; 100][..]), &options);
    let refused = refusal(in_little_memory(read));
    assert!(matches!(refused, NpyError::Truncated { actual: 100, .. }), "{refused}");
}

proptest! {
    #[test]
    fn round_trip(case in cases(NAMED)) {
        let tensor = case.tensor();
        let bytes = npy::to_bytes(&tensor).unwrap();
        let again = npy::from_bytes(&bytes).unwrap();
        prop_assert_eq!((again.dtype(), again.shape()), (tensor.dtype(), tensor.shape()));
        prop_assert_eq!(elements(&again), elements(&tensor));
        // Column-major order is kept, and everything else becomes row-major.
        let dims: Vec<isize> = (0isize..).take(tensor.ndim()).collect();
        let reversed: Vec<isize> = dims.into_iter().rev().collect();
        let transposed = tensor.permute(reversed).unwrap();
        let is_column_major = !tensor.is_contiguous() && transposed.is_contiguous();
        prop_assert_eq!(again.is_contiguous(), !is_column_major);
        prop_assert_eq!(npy::to_bytes(&again).unwrap(), bytes);
    }

    #[test]
    fn damaged_files_are_read_or_refused(case in cases(NAMED), damage in damages()) {
        let bytes = damage.of(&npy::to_bytes(&case.tensor()).unwrap());
        if let Ok(tensor) = in_little_memory(|| npy::from_bytes(&bytes)) {
            prop_assert!(tensor.nbytes() <= bytes.len());
        }
        let _ = in_little_memory(|| npy::read_from(&mut &bytes[..]));
    }

    #[test]
    fn any_header_is_read_or_refused(header in "[\\{\\}\\(\\)'descrfotanhpFalseTu_:, <>|0-9]{0,80}") {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
        let _ = in_little_memory(|| npy::from_bytes(&bytes));
    }
}
