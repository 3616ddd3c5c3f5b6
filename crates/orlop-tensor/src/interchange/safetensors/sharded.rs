//! [`ShardedSafeTensors`]: tensors in several files, with an index.

use super::file::{Copied, SafeTensors};
use super::index::ShardIndex;
use crate::error::Result;
use crate::error::safetensors::SafetensorsError;
use crate::interchange::NamedTensors;
use orlop_context::Context;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The tensors of an index, from all of its files, in alphabetical order: it dereferences to them.
///
/// ```
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::safetensors::{Metadata, ShardedSafeTensors, save};
///
/// let folder = tempfile::tempdir()?;
/// for name in ["a", "b"] {
///     let file = folder.path().join(name).with_extension("safetensors");
///     save(file, [(name, Tensor::from_slice(&[1.0f32])?)], &Metadata::new())?;
/// }
/// let index = folder.path().join("model.safetensors.index.json");
/// std::fs::write(&index, r#"{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}"#)?;
/// let all = ShardedSafeTensors::read(&index)?;
/// assert_eq!((all.len(), all.shards().count()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Tensors that are in the files but not in the index are available through [`ShardedSafeTensors::shards`].
#[derive(Debug)]
pub struct ShardedSafeTensors {
    tensors: NamedTensors,
    shards: BTreeMap<PathBuf, SafeTensors>,
    total_size: Option<u64>,
}

impl ShardedSafeTensors {
    /// Maps each file of the index at `path`. See [`SafeTensors::map`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardedSafeTensors::read`].
    ///
    /// # Safety
    ///
    /// Those of [`SafeTensors::map`], for each of the files. The index itself is read, not mapped.
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        Self::open(path.as_ref(), |file| unsafe { SafeTensors::map(file) })
    }

    /// Maps each file of the index at `path`, counted in `context`. See [`SafeTensors::map_in`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardedSafeTensors::read`].
    ///
    /// # Safety
    ///
    /// As for [`ShardedSafeTensors::map`].
    pub unsafe fn map_in(context: &Context, path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        context.scope(|| unsafe { Self::map(path) })
    }

    /// Reads each file of the index at `path`. See [`SafeTensors::read`].
    ///
    /// Files must be inside the index's folder; symbolic links may lead elsewhere, as they do in download
    /// caches.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`], for example for a missing file; [`SafetensorsError::Malformed`] for a
    /// damaged file or an index with a path outside its folder; [`SafetensorsError::MissingTensor`]; out of
    /// memory.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), |file| SafeTensors::read(file))
    }

    fn open(path: &Path, open: impl Fn(&Path) -> Result<SafeTensors>) -> Result<Self> {
        let index = ShardIndex::read(path)?;
        let mut shards = BTreeMap::new();
        for file in index.files() {
            let file = path.with_file_name(file);
            let shard = open(&file)?;
            shards.insert(file, shard);
        }
        let mut tensors = BTreeMap::new();
        for (name, file) in index.iter() {
            let file = path.with_file_name(file);
            let tensor = shards.get(&file).and_then(|shard| shard.get(name));
            let missing =
                || SafetensorsError::MissingTensor { name: name.into(), path: file.as_path().into() };
            tensors.insert(name.to_owned(), tensor.ok_or_else(missing)?.clone());
        }
        let tensors = NamedTensors::of_map(Some(path), tensors);
        Ok(Self { tensors, shards, total_size: index.total_size() })
    }

    /// Returns the files with their paths.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = (&Path, &SafeTensors)> {
        self.shards.iter().map(|(path, shard)| (path.as_path(), shard))
    }

    /// Returns the tensors of all files that had to be copied from the mapping.
    pub fn copied(&self) -> impl Iterator<Item = &Copied> {
        self.shards.values().flat_map(SafeTensors::copied)
    }

    /// Returns the total size that the index states; see [`ShardIndex::total_size`].
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        self.total_size
    }
}

impl Deref for ShardedSafeTensors {
    type Target = NamedTensors;

    fn deref(&self) -> &NamedTensors {
        &self.tensors
    }
}
