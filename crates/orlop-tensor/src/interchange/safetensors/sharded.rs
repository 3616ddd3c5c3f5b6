//! Tensors in several files, with an index.

use super::error::SafetensorsError;
use super::file::{Copied, SafeTensors};
use super::index::ShardIndex;
use crate::Tensor;
use crate::error::Result;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::path::{Path, PathBuf};

/// The tensors that an index names, from all of its files. See [`save_sharded`](super::save_sharded) for an example.
///
/// Tensors that are in the files and not in the index are left to [`ShardedSafeTensors::shards`].
pub struct ShardedSafeTensors {
    tensors: BTreeMap<String, Tensor>,
    shards: BTreeMap<PathBuf, SafeTensors>,
    total_size: Option<u64>,
}

impl ShardedSafeTensors {
    /// Maps every file that the index at `path` names, once. See [`SafeTensors::map`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardedSafeTensors::read`].
    ///
    /// # Safety
    ///
    /// Those of [`SafeTensors::map`], for each of the files. The index itself is read.
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: the caller's promises.
        Self::open(path.as_ref(), |file| unsafe { SafeTensors::map(file) })
    }

    /// Reads every file that the index at `path` names, once. See [`SafeTensors::read`].
    ///
    /// Files are looked for in the index's folder and below, nowhere else; links may lead elsewhere, as they do in caches of
    /// downloads.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`]: a file is not there; [`SafetensorsError::Malformed`]: one lies, or the index leads out of
    /// its folder; [`SafetensorsError::MissingTensor`]; out of memory.
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
        Ok(Self { tensors, shards, total_size: index.total_size() })
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::NoSuchTensor`].
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let missing = || SafetensorsError::NoSuchTensor { name: name.into() };
        Ok(self.get(name).ok_or_else(missing)?)
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names and tensors, in alphabetical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// How many tensors the index names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether it names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The files with their paths.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = (&Path, &SafeTensors)> {
        self.shards.iter().map(|(path, shard)| (path.as_path(), shard))
    }

    /// The tensors of all files that could not stay in the mapping.
    pub fn copied(&self) -> impl Iterator<Item = &Copied> {
        self.shards.values().flat_map(SafeTensors::copied)
    }

    /// What the index states; see [`ShardIndex::total_size`].
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        self.total_size
    }

    /// The tensors alone, which keep alive what they look at.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, Tensor> {
        self.tensors
    }
}

impl fmt::Debug for ShardedSafeTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedSafeTensors")
            .field("tensors", &self.len())
            .field("shards", &self.shards)
            .field("total_size", &self.total_size)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a ShardedSafeTensors {
    type Item = (&'a String, &'a Tensor);
    type IntoIter = btree_map::Iter<'a, String, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.iter()
    }
}

impl IntoIterator for ShardedSafeTensors {
    type Item = (String, Tensor);
    type IntoIter = btree_map::IntoIter<String, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}
