//! Mapped files: only misaligned tensors are copied, and they are reported.
#![cfg(not(miri))]

use super::file;
use orlop_context::{Context, Source};
use orlop_core::{DType, MemoryKind};
use orlop_tensor::interchange::safetensors::{CopyReason, Metadata, SafeTensors, ShardedSafeTensors, save};
use orlop_tensor::{Error, Tensor};
use std::fs;
use std::path::Path;

fn map(path: &Path) -> SafeTensors {
    // SAFETY: the tests' own file, which they change only by replacing it.
    unsafe { SafeTensors::map(path) }.unwrap()
}

/// The mapping cannot be written, so nothing gives write access to it, not even after its last tensor.
#[test]
fn a_mapping_does_not_become_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&path, [("a", &Tensor::zeros([64], DType::F32).unwrap())], &Metadata::new()).unwrap();
    let context = Context::new();
    // SAFETY: as in `map`.
    let mapped = unsafe { SafeTensors::map_in(&context, &path) }.unwrap();
    assert!(mapped.storage().clone().into_block().is_err());
    let block = mapped.storage().block().unwrap();
    drop(mapped);
    let block = block.try_into_block().unwrap_err();
    let live = || context.memory_map().live_from(Source::Mapped);
    assert!(live() > 0);
    drop(block);
    assert_eq!(live(), 0);
}

/// Returns a header padded so that the data begins at a multiple of 8 plus `odd`.
fn filled(json: &str, odd: usize) -> String {
    let length = json.len().next_multiple_of(8) + odd;
    format!("{json:<length$}")
}

fn address(tensor: &Tensor) -> usize {
    tensor.storage().unwrap().as_ptr().unwrap().addr()
}

#[test]
fn tensors_are_where_the_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = Tensor::arange(0.0, 1000.0, 1.0, DType::F32).unwrap().view([10, 100]).unwrap();
    let small = Tensor::from_slice(&[true, false, true]).unwrap();
    save(&path, [("a", &small), ("b", &tensor), ("c", &tensor)], &Metadata::new()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let mapped = map(&path);
    let start = mapped.storage().as_ptr().unwrap().addr();
    assert_eq!((mapped.storage().nbytes(), start % 4096), (bytes.len(), 0));
    assert!(mapped.copied().is_empty());

    // The header first, then the widest dtype.
    let data = bytes.len() - 8003;
    for (name, offset) in [("b", 0), ("c", 4000), ("a", 8000)] {
        let tensor = mapped.tensor(name).unwrap();
        assert_eq!(address(tensor), start + data + offset, "{name}");
        assert!(tensor.storage().unwrap().is_alias_of(mapped.storage()));
        assert_eq!(tensor.memory_kind(), MemoryKind::Persistent);
        assert!(matches!(tensor.zero_(), Err(Error::ReadOnly { .. })));
    }
    #[cfg(target_os = "linux")]
    assert!(is_mapped_from(start, &path));
    let (b, column) = (mapped.tensor("b").unwrap(), mapped.tensor("b").unwrap().select(1, 5).unwrap());
    assert_eq!(b.as_slice::<f32>().unwrap().as_ptr().addr(), start + data);
    assert!(column.is_alias_of(b) && column.to_vec::<f32>().unwrap()[9] == 905.0);

    // A copy can be written. The mapping cannot, for good, nor can it be replaced or released.
    let copy = b.lazy_clone().unwrap();
    copy.zero_().unwrap();
    mapped.storage().allow_access();
    assert!(matches!(mapped.tensor("c").unwrap().zero_(), Err(Error::ReadOnly { .. })));
    assert!(matches!(mapped.storage().clear(), Err(Error::ReadOnly { .. })));
    assert_eq!(b.to_vec::<f32>().unwrap()[999], 999.0);
    assert!(fs::read(&path).unwrap() == bytes);
}

/// Returns `true` if the system reports the address in a mapping of the file.
#[cfg(target_os = "linux")]
fn is_mapped_from(address: usize, path: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = path.canonicalize().unwrap();
    maps.lines().any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, _) = range.split_once('-').unwrap();
        usize::from_str_radix(start, 16) == Ok(address) && line.ends_with(path.to_str().unwrap())
    })
}

#[test]
fn the_mapping_outlives_the_file_and_the_handle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&path, [("a", Tensor::from_slice(&[1i16, 2, 3]).unwrap())], &Metadata::new()).unwrap();
    let mapped = map(&path);
    let old = mapped.tensor("a").unwrap().clone();
    // Replaces the file with data from its own mapping.
    save(&path, [("a", old.slice(0, Some(1), None, 1).unwrap())], &Metadata::new()).unwrap();
    drop(mapped);
    assert_eq!(old.to_vec::<i16>().unwrap(), [1, 2, 3]);
    assert_eq!(map(&path).tensor("a").unwrap().to_vec::<i16>().unwrap(), [2, 3]);
    fs::remove_file(&path).unwrap();
    assert_eq!(old.to_vec::<i16>().unwrap(), [1, 2, 3]);
}

#[test]
fn an_odd_header_moves_what_needs_alignment_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.safetensors");
    let json = r#"{"f":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "h":{"dtype":"F16","shape":[],"data_offsets":[8,10]},
        "none":{"dtype":"I64","shape":[0,3],"data_offsets":[10,10]},
        "u":{"dtype":"U8","shape":[3],"data_offsets":[10,13]}}"#;
    let data = [&1.5f32.to_le_bytes()[..], &(-2.0f32).to_le_bytes(), &[0, 0x3c], &[7, 8, 9]].concat();
    for odd in 0..8 {
        fs::write(&path, file(&filled(json, odd), &data)).unwrap();
        let mapped = map(&path);
        let start = 8 + filled(json, odd).len();
        assert_eq!(mapped.tensor("f").unwrap().to_vec::<f32>().unwrap(), [1.5, -2.0]);
        assert_eq!(mapped.tensor("u").unwrap().to_vec::<u8>().unwrap(), [7, 8, 9]);
        let copied: Vec<_> = mapped.copied().iter().map(|copied| &*copied.name).collect();
        let expected: &[&str] = match odd {
            0 | 4 => &[],
            2 | 6 => &["f"],
            _ => &["f", "h"],
        };
        assert_eq!(copied, expected);
        for (name, tensor) in mapped.iter() {
            let alone = copied.contains(&name);
            assert_eq!(tensor.storage().unwrap().is_alias_of(mapped.storage()), !alone, "{name}");
            assert_eq!(tensor.memory_kind(), MemoryKind::Persistent);
        }
        for copied in mapped.copied() {
            let CopyReason::Misaligned { file_offset, needs } = copied.why else { panic!("{copied}") };
            assert!(file_offset >= start && !needs.is_aligned(file_offset));
        }
        if let [first, ..] = mapped.copied() {
            let told = format!("`f` (8 bytes) was copied: its file offset {start} is not a multiple of 4");
            assert_eq!(first.to_string(), told);
        }
        assert!(SafeTensors::read(&path).unwrap().copied().is_empty());
    }
}

#[test]
fn data_that_is_not_sorted_by_width_is_copied_where_it_must_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.safetensors");
    let json = r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
        "b":{"dtype":"I32","shape":[1],"data_offsets":[3,7]},
        "c":{"dtype":"U8","shape":[1],"data_offsets":[7,8]},
        "d":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}}"#;
    fs::write(&path, file(&filled(json, 0), &[1, 1, 1, 5, 0, 0, 0, 1, 6, 0, 0, 0])).unwrap();
    let (mapped, read) = (map(&path), SafeTensors::read(&path).unwrap());
    assert_eq!(mapped.copied().iter().map(|copied| &*copied.name).collect::<Vec<_>>(), ["b"]);
    for file in [&mapped, &read] {
        assert_eq!(file.tensor("b").unwrap().item::<i32>().unwrap(), 5);
        assert_eq!(file.tensor("d").unwrap().item::<i32>().unwrap(), 6);
    }
    assert!(read.storage().is_alias_of(read.tensor("b").unwrap().storage().unwrap()));
    assert_eq!(address(read.tensor("b").unwrap()) % 64, 0);
}

/// A context that is named counts the mapping and the copies, and the current one nothing.
#[test]
fn a_file_is_counted_in_the_context_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = Tensor::arange(0.0, 1000.0, 1.0, DType::F32).unwrap();
    save(&path, [("a", &tensor)], &Metadata::new()).unwrap();
    let [named, current] = [Context::new(), Context::new()];
    let of = |context: &Context| context.memory_map().live_from(Source::Mapped);
    current.scope(|| {
        // SAFETY: the test's own file, which it does not change.
        let mapped = unsafe { SafeTensors::map_in(&named, &path) }.unwrap();
        assert_eq!((of(&named), of(&current)), (fs::metadata(&path).unwrap().len(), 0));
        drop(mapped);
        assert_eq!(of(&named), 0);
        let index = path.with_extension("index.json");
        let shard = path.file_name().unwrap().to_string_lossy();
        fs::write(&index, format!(r#"{{"weight_map": {{"a": "{shard}"}}}}"#)).unwrap();
        // SAFETY: as above.
        let mapped = unsafe { ShardedSafeTensors::map_in(&named, &index) }.unwrap();
        assert!(of(&named) >= 4000 && of(&current) == 0);
        drop(mapped);
    });
    assert_eq!(of(&named), 0);
}
