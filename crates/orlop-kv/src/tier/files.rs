//! [`FileStore`]: blocks as files of a folder.

use super::{BlockKey, BlockStore};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;

/// A store with a file for each block. A block is written aside, read again, and renamed to its place when it
/// is intact. Several processes may share a folder.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    /// Files written so far: the names of those that are not in their place yet.
    written: u64,
}

impl FileStore {
    /// Opens a folder, and creates it if it is not there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, written: 0 })
    }

    /// Returns the file of a block.
    #[must_use]
    pub fn path(&self, key: BlockKey) -> PathBuf {
        self.folder.join(format!("{key}.kv"))
    }

    fn write_aside(aside: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create_new(aside)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        drop(file);
        let is_intact = fs::read(aside)? == bytes;
        if is_intact { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
    }
}

impl BlockStore for FileStore {
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()> {
        self.written += 1;
        let aside = self.folder.join(format!(".{}-{}-{key}", process::id(), self.written));
        let written = Self::write_aside(&aside, bytes).and_then(|()| fs::rename(&aside, self.path(key)));
        if written.is_err() {
            // The first error is the one that matters.
            let _ = fs::remove_file(&aside);
        }
        written
    }

    fn get(&mut self, key: BlockKey, bytes: &mut Vec<u8>) -> io::Result<bool> {
        match File::open(self.path(key)) {
            Ok(mut file) => file.read_to_end(bytes).map(|_| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn contains(&mut self, key: BlockKey) -> bool {
        self.path(key).is_file()
    }

    fn remove(&mut self, key: BlockKey) -> io::Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
