//! Reads the golden files of `testdata/torch-views`.

use std::{fs::File, io::Read, path::Path};

use flate2::read::GzDecoder;
use serde_json::Value;

/// Returns the text of a compressed file.
pub(crate) fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-views").join(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text
}

/// Reads a compressed JSON file in Python's dialect: bare words for infinities become strings.
pub(crate) fn json(name: &str) -> Value {
    let standard = text(name).replace("-Infinity", r#""-inf""#).replace("Infinity", r#""inf""#);
    serde_json::from_str(&standard).unwrap()
}

/// Returns the array under `key`.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no array {key} in {value}"))
}

/// Returns the array of integers under `key`.
pub(crate) fn integers(value: &Value, key: &str) -> Vec<i64> {
    array(value, key).iter().map(|item| item.as_i64().unwrap()).collect()
}
