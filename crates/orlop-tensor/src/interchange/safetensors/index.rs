//! [`ShardIndex`]: which file has which tensor: `{"metadata": {"total_size": …}, "weight_map": {"name":
//! "file", …}}`.
//!
//! An index is untrusted: its files must be inside its own folder.

use super::header::MAX_HEADER;
use super::pairs::{Pairs, unique};
use crate::error::Result;
use crate::error::safetensors::{Flaw, SafetensorsError};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The files of the tensors of a model.
///
/// ```
/// use orlop_tensor::interchange::safetensors::ShardIndex;
///
/// let index = ShardIndex::from_bytes(br#"{
///     "metadata": { "total_size": 96 },
///     "weight_map": { "a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors" }
/// }"#)?;
/// assert_eq!(index.file_of("c"), Some("2.safetensors".as_ref()));
/// assert_eq!((index.len(), index.files().len(), index.total_size()), (3, 2, Some(96)));
///
/// let outside = br#"{ "weight_map": { "a": "../passwords" } }"#;
/// assert!(ShardIndex::from_bytes(outside).is_err());
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardIndex {
    files: BTreeMap<String, PathBuf>,
    total_size: Option<u64>,
}

impl ShardIndex {
    /// Parses an index from JSON.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Malformed`].
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        Self::parse(json).map_err(|flaw| flaw.of(None).into())
    }

    /// Reads an index from a JSON file. The files that it names are not accessed.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`]; [`SafetensorsError::Malformed`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = SafetensorsError::io(path);
        let file = File::open(path).map_err(&io)?;
        let bytes = file.metadata().map_err(&io)?.len();
        if usize::try_from(bytes).map_or(true, |bytes| bytes > MAX_HEADER) {
            return Err(Flaw::HeaderTooLarge { bytes, limit: MAX_HEADER }.of(Some(path)).into());
        }
        let mut json = Vec::new();
        // No more than the length checked above, in case the file grows.
        file.take(bytes).read_to_end(&mut json).map_err(&io)?;
        Ok(Self::parse(&json).map_err(|flaw| flaw.of(Some(path)))?)
    }

    fn parse(json: &[u8]) -> Result<Self, Flaw> {
        if json.len() > MAX_HEADER {
            let bytes = u64::try_from(json.len()).unwrap_or(u64::MAX);
            return Err(Flaw::HeaderTooLarge { bytes, limit: MAX_HEADER });
        }
        let claim: RawIndex = serde_json::from_slice(json)?;
        let files = claim.weight_map.0.into_iter().map(|(tensor, file)| match inside(&file) {
            Some(path) => Ok((tensor, path)),
            None => Err(Flaw::LeavesFolder { tensor: tensor.into(), file: file.into() }),
        });
        let files: Vec<_> = files.collect::<Result<_, _>>()?;
        Ok(Self { files: unique(files)?, total_size: claim.metadata.and_then(|stated| stated.total_size.0) })
    }

    /// Returns the file of this tensor, relative to the index's folder.
    #[must_use]
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.files.get(name).map(PathBuf::as_path)
    }

    /// Returns the tensors and their files, in alphabetical order of the tensors.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Path)> {
        self.files.iter().map(|(name, file)| (name.as_str(), file.as_path()))
    }

    /// Returns the files, without duplicates.
    #[must_use]
    pub fn files(&self) -> BTreeSet<&Path> {
        self.files.values().map(PathBuf::as_path).collect()
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns `true` if there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the total bytes of the tensors, as the index states them. Some existing indices are wrong, so
    /// nothing depends on it.
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        self.total_size
    }
}

/// Checks that a path is relative and stays inside the folder.
fn inside(file: &str) -> Option<PathBuf> {
    let path = Path::new(file);
    let down = path.components().all(|part| matches!(part, Component::Normal(_)));
    // Components omit dots in the middle, so that two spellings of one file are one file.
    (down && !file.is_empty()).then(|| path.components().collect())
}

/// The contents of an index, unchecked.
#[derive(Deserialize)]
struct RawIndex {
    #[serde(default)]
    metadata: Option<IndexMetadata>,
    weight_map: Pairs<String>,
}

#[derive(Deserialize)]
struct IndexMetadata {
    #[serde(default)]
    total_size: TotalSize,
}

/// A number of bytes, if it is an integer: some indices have fractions.
#[derive(Default)]
struct TotalSize(Option<u64>);

impl<'de> Deserialize<'de> for TotalSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TotalSizeVisitor;

        impl Visitor<'_> for TotalSizeVisitor {
            type Value = TotalSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes")
            }

            fn visit_u64<E>(self, bytes: u64) -> Result<TotalSize, E> {
                Ok(TotalSize(Some(bytes)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }

            fn visit_unit<E>(self) -> Result<TotalSize, E> {
                Ok(TotalSize(None))
            }
        }

        deserializer.deserialize_any(TotalSizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_down() {
        for good in ["a", "a.b/c", "..a", "a//b", "a/./b"] {
            assert!(inside(good).is_some(), "{good}");
        }
        assert_eq!(inside("a//b"), inside("a/./b"));
        for bad in ["", ".", "..", "/", "/a", "./a", "../a", "a/../b", "a/.."] {
            assert_eq!(inside(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_that_are_none() {
        for size in ["1e3", "-1", "null", "12.5"] {
            let json =
                format!(r#"{{"metadata": {{"total_size": {size}, "more": [1]}}, "weight_map": {{}}}}"#);
            assert_eq!(ShardIndex::from_bytes(json.as_bytes()).unwrap().total_size(), None, "{size}");
        }
        for json in [&b"{}"[..], b"[]", b"", br#"{"metadata": {"total_size": "1"}, "weight_map": {}}"#] {
            assert!(ShardIndex::from_bytes(json).is_err());
        }
        assert!(ShardIndex::from_bytes(br#"{"metadata": null, "weight_map": {}}"#).unwrap().is_empty());
    }
}
