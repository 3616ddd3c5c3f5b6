//! Round trips of tensors through files, and through the `safetensors` crate.

use orlop_core::{DType, MemoryKind};
use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, SafetensorsError, save, to_bytes};
use orlop_tensor::{Bool8, Error, Storage, Tensor, TensorOptions};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;

/// The format's dtypes that [`DType`] has.
const DTYPES: [(DType, Dtype); 16] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
];

struct Sample {
    name: String,
    dtype: (DType, Dtype),
    sizes: Vec<usize>,
    bytes: Vec<u8>,
}

/// Returns tensors of every dtype and several shapes.
fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for dtype in DTYPES {
        for sizes in [vec![], vec![3], vec![0], vec![2, 0, 7], vec![2, 3, 5], vec![1; 9]] {
            let bytes = sizes.iter().product::<usize>() * dtype.0.size();
            let most = if dtype.0 == DType::Bool { 2 } else { 251 };
            let bytes = (0..bytes).map(|byte| u8::try_from(byte * 7 % most).unwrap()).collect();
            samples.push(Sample { name: format!("{} {sizes:?}", dtype.0), dtype, sizes, bytes });
        }
    }
    samples
}

fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    tensor.storage().unwrap().read().unwrap().to_vec()
}

fn tensors() -> Vec<(String, Tensor)> {
    let tensor = |Sample { name, dtype, sizes, bytes }| {
        let storage = Storage::new(bytes.len(), &TensorOptions::new()).unwrap();
        storage.write().unwrap().copy_from_slice(&bytes);
        (name, Tensor::bind(&storage, 0, sizes, dtype.0).unwrap())
    };
    samples().into_iter().map(tensor).collect()
}

#[test]
fn our_files_are_theirs_to_the_byte() {
    fn view(Sample { name, dtype, sizes, bytes }: &Sample) -> (&String, TensorView<'_>) {
        (name, TensorView::new(dtype.1, sizes.clone(), bytes).unwrap())
    }

    let samples = samples();
    let views = samples.iter().map(view);
    let metadata = HashMap::from([("format".to_owned(), "orlop \"7\"".to_owned())]);
    let theirs = safetensors::serialize(views, Some(metadata.clone())).unwrap();
    let ours = to_bytes(tensors(), &metadata.into_iter().collect()).unwrap();
    assert!(ours == theirs);
    let reversed = tensors().into_iter().rev();
    let again = to_bytes(reversed, &Metadata::from([("format".into(), "orlop \"7\"".into())])).unwrap();
    assert!(again == theirs, "the order of the tensors does not matter");

    let read = SafeTensors::from_bytes(&theirs).unwrap();
    assert_eq!((read.len(), read.metadata()["format"].as_str()), (samples.len(), "orlop \"7\""));
    for Sample { name, dtype, sizes, bytes } in &samples {
        let tensor = read.tensor(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.sizes()), (dtype.0, &sizes[..]), "{name}");
        assert_eq!((&bytes_of(tensor), tensor.memory_kind()), (bytes, MemoryKind::Persistent), "{name}");
    }
    assert!(to_bytes(read.iter(), read.metadata()).unwrap() == theirs);
}

#[test]
#[cfg_attr(miri, ignore = "maps files")]
fn files_are_read_and_mapped_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let tensors = tensors();
    save(&path, tensors.iter().map(|(name, tensor)| (name, tensor)), &Metadata::new()).unwrap();
    let read = SafeTensors::read(&path).unwrap();
    // SAFETY: nothing else uses the file.
    let mapped = unsafe { SafeTensors::map(&path) }.unwrap();
    let names: Vec<_> = read.names().collect();
    assert!(names.is_sorted() && names.len() == tensors.len() && mapped.names().eq(names));
    for (name, tensor) in tensors {
        for file in [&read, &mapped] {
            let same = file.get(&name).unwrap();
            assert_eq!((same.dtype(), same.sizes()), (tensor.dtype(), tensor.sizes()), "{name}");
            assert_eq!(bytes_of(same), bytes_of(&tensor), "{name}");
        }
        assert!(read.get(&name).unwrap().is_alias_of(read.iter().next().unwrap().1));
    }
    assert_eq!(read.storage().as_ptr().unwrap().addr() % 64, 0);
    assert!(read.copied().is_empty() && mapped.copied().is_empty());
}

#[test]
fn nothing_is_a_file_too() {
    let nothing: [(&str, Tensor); 0] = [];
    let bytes = to_bytes(nothing, &Metadata::new()).unwrap();
    assert_eq!(bytes, b"\x08\0\0\0\0\0\0\0{}      ");
    let file = SafeTensors::from_bytes(&bytes).unwrap();
    assert!(file.is_empty() && file.metadata().is_empty() && file.storage().nbytes() == 0);
}

#[test]
fn views_are_written_as_they_look() {
    let tensor = Tensor::arange(0.0, 12.0, 1.0, DType::I32).unwrap().view([3, 4]).unwrap();
    let tensors = [
        ("transposed", tensor.t().unwrap()),
        ("part", tensor.narrow(0, 1, 2).unwrap()),
        ("columns", tensor.slice(1, Some(1), None, 2).unwrap()),
        ("expanded", tensor.select(0, 2).unwrap().expand([2, 4]).unwrap()),
        ("number", tensor.select(0, 2).unwrap().select(0, 3).unwrap()),
    ];
    let file = SafeTensors::from_bytes(&to_bytes(tensors, &Metadata::new()).unwrap()).unwrap();
    let elements = |name| file.tensor(name).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(elements("transposed"), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    assert_eq!(elements("part"), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(elements("columns"), [1, 3, 5, 7, 9, 11]);
    assert_eq!(elements("expanded"), [8, 9, 10, 11, 8, 9, 10, 11]);
    assert_eq!((elements("number"), file.tensor("number").unwrap().ndim()), (vec![11], 0));
}

#[test]
fn bools_are_ones_when_written_and_any_byte_when_read() {
    let odd =
        Tensor::from_vec([3], vec![Bool8::from_byte(7), Bool8::default(), Bool8::from_byte(1)]).unwrap();
    let bytes = to_bytes([("odd", odd)], &Metadata::new()).unwrap();
    assert_eq!(bytes[bytes.len() - 3..], [1, 0, 1]);
    let json = r#"{"odd":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#;
    let read = SafeTensors::from_bytes(&super::file(json, &[7, 0, 255])).unwrap();
    let read = read.tensor("odd").unwrap();
    assert_eq!(read.to_vec::<bool>().unwrap(), [true, false, true]);
    assert_eq!(read.as_slice::<Bool8>().unwrap()[0], Bool8::from(true));
}

#[test]
fn what_cannot_be_written() {
    let tensor = Tensor::from_slice(&[1.0f32]).unwrap();
    let wide = Tensor::zeros([1], DType::C128).unwrap();
    let none = Metadata::new();
    let refused = |tensors: &[(&str, Tensor)]| match to_bytes(
        tensors.iter().map(|(name, tensor)| (name, tensor)),
        &none,
    )
    .unwrap_err()
    {
        Error::Safetensors(error) => error,
        error => panic!("{error}"),
    };
    let error = refused(&[("a", tensor.clone()), ("b", tensor.clone()), ("a", tensor.clone())]);
    assert!(matches!(error, SafetensorsError::DuplicateName { name } if &*name == "a"));
    let error = refused(&[("__metadata__", tensor.clone())]);
    assert!(matches!(error, SafetensorsError::ReservedName { name: "__metadata__" }));
    let error = refused(&[("w", wide)]);
    assert_eq!(error.to_string(), "tensor `w` is complex128, which the format does not support");
    let huge = tensor.expand([1_i64 << 40, 1 << 17]).unwrap();
    let error = refused(&[("h", huge)]);
    assert!(matches!(error, SafetensorsError::OutOfMemory { bytes, .. } if bytes > 1 << 59), "{error}");

    let undefined = to_bytes([("u", Tensor::undefined())], &none);
    assert!(matches!(undefined, Err(Error::Undefined)));
    let writing = tensor.as_mut_slice::<f32>().unwrap();
    assert!(matches!(to_bytes([("t", &tensor)], &none), Err(Error::Borrowed { .. })));
    drop(writing);
    assert!(to_bytes([("t", &tensor)], &none).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes")]
fn headers_above_the_limit_of_readers() {
    let tensor = Tensor::from_slice(&[1u8]).unwrap();
    let error = to_bytes([("n".repeat(100_000_000), &tensor)], &Metadata::new()).unwrap_err();
    let Error::Safetensors(error) = error else { panic!("{error}") };
    assert!(matches!(error, SafetensorsError::HeaderTooLarge { limit: 100_000_000, .. }), "{error}");
}

#[test]
fn names_are_any_text() {
    let tensor = Tensor::from_slice(&[1u8]).unwrap();
    let names = ["", "a\"b\\c\n\0", "ßøर्म", "__metadata", "../x"];
    let bytes = to_bytes(names.map(|name| (name, &tensor)), &Metadata::new()).unwrap();
    let file = SafeTensors::from_bytes(&bytes).unwrap();
    assert!(names.iter().all(|name| file.get(name).is_some()));
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert!(names.iter().all(|name| theirs.tensor(name).is_ok()));
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn files_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let tensor = Tensor::from_slice(&[1u8]).unwrap();
    let is_io = |error: Error, path: &std::path::Path| {
        let told = error.to_string();
        assert!(told.starts_with(&path.display().to_string()), "{told}");
        matches!(error, Error::Safetensors(SafetensorsError::Io { .. }))
    };
    assert!(is_io(SafeTensors::read(&path).unwrap_err(), &path));
    assert!(is_io(SafeTensors::read(folder.path()).unwrap_err(), folder.path()));
    // SAFETY: there is no file.
    assert!(is_io(unsafe { SafeTensors::map(&path) }.unwrap_err(), &path));
    let deep = path.join("deep");
    assert!(is_io(save(&deep, [("t", &tensor)], &Metadata::new()).unwrap_err(), &deep));
    assert!(is_io(save(folder.path(), [("t", &tensor)], &Metadata::new()).unwrap_err(), folder.path()));
    let missing = SafeTensors::from_bytes(&to_bytes([("t", &tensor)], &Metadata::new()).unwrap()).unwrap();
    let error = missing.tensor("x").map(drop).unwrap_err();
    assert_eq!(error.to_string(), "there is no tensor `x`");
    let path = folder.path().join("names.safetensors");
    save(&path, [("layers.0.weight", &tensor), ("layers.1.weight", &tensor)], &Metadata::new()).unwrap();
    let error = SafeTensors::read(&path).unwrap().tensor("layers.1.wieght").map(drop).unwrap_err();
    let expected = " has no tensor `layers.1.wieght`; the nearest name is `layers.1.weight`";
    assert_eq!(error.to_string(), format!("{}{expected}", path.display()));
    // SAFETY: nothing else uses the file.
    let mapped = unsafe { SafeTensors::map(&path) }.unwrap();
    assert!(mapped.tensor("bias").map(drop).unwrap_err().to_string().ends_with(" has no tensor `bias`"));
}
