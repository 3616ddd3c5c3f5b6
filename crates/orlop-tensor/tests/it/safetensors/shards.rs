//! Tensors in several files.
#![cfg(not(miri))]

use super::flaw;
use orlop_core::DType;
use orlop_tensor::interchange::safetensors::{
    Flaw, Metadata, SafetensorsError, ShardIndex, ShardedSafeTensors, save,
};
use orlop_tensor::{Error, Tensor};
use std::fs;
use std::path::{Path, PathBuf};

fn ones(count: usize) -> Tensor {
    Tensor::ones([count], DType::F32).unwrap()
}

/// Writes files and their index as Hugging Face does.
fn save_shards(folder: &Path, shards: &[&[(&str, usize)]], metadata: &Metadata) -> PathBuf {
    let (mut places, mut bytes) = (Vec::new(), 0);
    for (number, tensors) in (1..).zip(shards) {
        let file = format!("model-{number:05}-of-{:05}.safetensors", shards.len());
        let tensors: Vec<_> = tensors.iter().map(|&(name, count)| (name, ones(count))).collect();
        bytes += tensors.iter().map(|(_, tensor)| tensor.nbytes()).sum::<usize>();
        places.extend(tensors.iter().map(|(name, _)| format!("{name:?}: {file:?}")));
        save(folder.join(file), tensors, metadata).unwrap();
    }
    let index = folder.join("model.safetensors.index.json");
    let places = places.join(", ");
    let json = format!(r#"{{"metadata": {{"total_size": {bytes}}}, "weight_map": {{{places}}}}}"#);
    fs::write(&index, json).unwrap();
    index
}

#[test]
fn shards_are_one_set_of_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata::from([("format".to_owned(), "pt".to_owned())]);
    let shards = [&[("d", 2), ("c", 2)][..], &[("large", 9)], &[("b", 3), ("a", 1), ("z", 0)]];
    let index = save_shards(folder.path(), &shards, &metadata);
    let all = ShardedSafeTensors::read(&index).unwrap();
    let parts: Vec<_> = all.shards().map(|(_, shard)| shard.names().collect::<Vec<_>>()).collect();
    assert_eq!(parts, [&["c", "d"][..], &["large"], &["a", "b", "z"]]);
    assert!(all.shards().all(|(_, shard)| shard.metadata() == &metadata));
    assert_eq!((all.len(), all.total_size()), (6, Some(17 * 4)));
    assert!(all.names().eq(["a", "b", "c", "d", "large", "z"]));
    assert_eq!(all.tensor("large").unwrap().to_vec::<f32>().unwrap(), [1.0; 9]);
    let error = all.tensor("larg").map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("{} has no tensor `larg`; the nearest name is `large`", index.display()));

    // SAFETY: nothing else uses the files.
    let mapped = unsafe { ShardedSafeTensors::map(&index) }.unwrap();
    assert!(mapped.copied().next().is_none() && mapped.names().eq(all.names()));
    let (c, d) = (mapped.tensor("c").unwrap(), mapped.tensor("d").unwrap());
    assert!(c.is_alias_of(d), "one file is opened once");
    assert!(!c.is_alias_of(mapped.tensor("a").unwrap()));
    assert_eq!(mapped.tensor("b").unwrap().to_vec::<f32>().unwrap(), [1.0; 3]);
}

#[test]
fn nothing_in_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let index = save_shards(folder.path(), &[], &Metadata::new());
    assert!(ShardedSafeTensors::read(index).unwrap().is_empty());
}

#[test]
fn an_index_stays_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir_all(inner.join("deep")).unwrap();
    let index = inner.join("index.json");
    let outside = folder.path().join("outside.safetensors");
    for path in [&outside, &inner.join("deep/a.safetensors")] {
        save(path, [("a", ones(1))], &Metadata::new()).unwrap();
    }
    let absolute = outside.to_str().unwrap();
    for file in ["../outside.safetensors", "deep/../../outside.safetensors", absolute, "", ".", ".."] {
        fs::write(&index, format!(r#"{{"weight_map":{{"a":"{file}"}}}}"#)).unwrap();
        let told = flaw(ShardedSafeTensors::read(&index));
        assert!(matches!(told, Flaw::LeavesFolder { .. }), "{file}: {told}");
    }
    fs::write(&index, r#"{"weight_map":{"a":"deep/a.safetensors"}}"#).unwrap();
    assert_eq!(ShardedSafeTensors::read(&index).unwrap().len(), 1);
    let io = |json: &str| {
        fs::write(&index, json).unwrap();
        let error = ShardedSafeTensors::read(&index).unwrap_err();
        assert!(matches!(error, Error::Safetensors(SafetensorsError::Io { .. })), "{error}");
        error.to_string()
    };
    assert!(io(r#"{"weight_map":{"a":"none.safetensors"}}"#).contains("none.safetensors"));
    assert!(io(r#"{"weight_map":{"a":"deep"}}"#).contains("deep"));
    assert!(!io("{\"weight_map\":{\"a\":\"a\\u0000b\"}}").is_empty());
}

#[test]
fn lies_of_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index.json");
    save(folder.path().join("1"), [("a", ones(1)), ("extra", ones(1))], &Metadata::new()).unwrap();
    fs::write(&index, r#"{"weight_map":{"a":"1","b":"1"}}"#).unwrap();
    let error = ShardedSafeTensors::read(&index).unwrap_err();
    assert!(error.to_string().ends_with("1 has no tensor `b`, as the index says"), "{error}");
    assert!(
        matches!(error, Error::Safetensors(SafetensorsError::MissingTensor { name, .. }) if &*name == "b")
    );

    fs::write(&index, r#"{"weight_map":{"a":"1","a":"2"}}"#).unwrap();
    assert!(matches!(flaw(ShardedSafeTensors::read(&index)), Flaw::Duplicate { name } if &*name == "a"));
    for json in ["", "[]", "{}", r#"{"weight_map":[]}"#, r#"{"weight_map":{"a":1}}"#] {
        fs::write(&index, json).unwrap();
        assert!(matches!(flaw(ShardIndex::read(&index)), Flaw::Json { .. }), "{json}");
    }
    // A sparse file of that size.
    fs::File::create(&index).unwrap().set_len(100_000_001).unwrap();
    assert!(matches!(flaw(ShardIndex::read(&index)), Flaw::HeaderTooLarge { bytes: 100_000_001, .. }));

    fs::write(&index, r#"{"weight_map":{"a":"1"}}"#).unwrap();
    let all = ShardedSafeTensors::read(&index).unwrap();
    assert!(all.get("extra").is_none() && all.shards().next().unwrap().1.get("extra").is_some());
    fs::write(folder.path().join("1"), b"cut").unwrap();
    let told = ShardedSafeTensors::read(&index).unwrap_err().to_string();
    assert!(told.contains("3 bytes cannot hold"), "{told}");
}
