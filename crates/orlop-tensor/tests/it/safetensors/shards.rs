//! Tensors in several files.
#![cfg(not(miri))]

use super::flaw;
use orlop_core::DType;
use orlop_tensor::interchange::safetensors::{
    Flaw, Metadata, SafetensorsError, ShardIndex, ShardedSafeTensors, save, save_sharded,
};
use orlop_tensor::{Error, Tensor};
use std::fs;
use std::path::Path;

fn ones(count: usize) -> Tensor {
    Tensor::ones([count], DType::F32).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn shards_are_filled_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let tensors =
        [("d", ones(2)), ("c", ones(2)), ("large", ones(9)), ("b", ones(3)), ("a", ones(1)), ("z", ones(0))];
    let metadata = Metadata::from([("format".to_owned(), "pt".to_owned())]);
    let index = save_sharded(folder.path(), tensors, 16, &metadata).unwrap();
    let all = ShardedSafeTensors::read(&index).unwrap();
    let parts: Vec<_> = all.shards().map(|(_, shard)| shard.names().collect::<Vec<_>>()).collect();
    assert_eq!(parts, [&["c", "d"][..], &["large"], &["a", "b", "z"]]);
    assert!(all.shards().all(|(_, shard)| shard.metadata() == &metadata));
    assert_eq!((all.len(), all.total_size()), (6, Some(17 * 4)));
    assert!(all.names().eq(["a", "b", "c", "d", "large", "z"]));
    assert_eq!(all.tensor("large").unwrap().to_vec::<f32>().unwrap(), [1.0; 9]);
    assert_eq!(
        names(folder.path()),
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json"
        ]
    );
    let error = all.tensor("larg").map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("{} has no tensor `larg`; the nearest name is `large`", index.display()));
    let json = fs::read_to_string(&index).unwrap();
    assert!(
        json.starts_with(
            "{\n  \"metadata\": {\n    \"total_size\": 68\n  },\n  \"weight_map\": {\n    \"a\": "
        )
    );
    assert!(json.ends_with("}\n"));

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
    let nothing: [(&str, Tensor); 0] = [];
    let index = save_sharded(folder.path(), nothing, 0, &Metadata::new()).unwrap();
    assert!(ShardedSafeTensors::read(index).unwrap().is_empty());
    assert_eq!(names(folder.path()), ["model.safetensors.index.json"]);
    let twice = [("a", ones(1)), ("a", ones(1))];
    let refused = save_sharded(folder.path(), twice, 0, &Metadata::new()).unwrap_err();
    assert!(matches!(refused, Error::Safetensors(SafetensorsError::DuplicateName { .. })));
    assert_eq!(names(folder.path()).len(), 1);
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
