//! [`FileStore`]: blocks as files of a folder.

use super::{BlockKey, BlockStore};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The extension of a block that is not in its place yet.
const ASIDE: &str = "kv-aside";

/// The age from which a file aside was left by a process that has ended.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A store with a file for each block. A block is written aside, read again, and renamed to its place when it
/// is intact. Several processes, on several machines, may share a folder.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    /// A random number: no other store writes files aside by this name.
    id: u64,
    /// Files written so far: the names of those that are not in their place yet.
    written: u64,
}

impl FileStore {
    /// Opens a folder, and creates it if it is not there. Files that another process left aside more than a
    /// day ago are removed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == ASIDE) && is_abandoned(&path) {
                // Another process may have removed it. It costs nothing but space.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(Self { folder, id: RandomState::new().hash_one(std::process::id()), written: 0 })
    }

    /// Returns the file of a block.
    #[must_use]
    pub fn path(&self, key: BlockKey) -> PathBuf {
        self.folder.join(format!("{key}.kv"))
    }

    fn write(mut file: File, aside: &Path, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        file.sync_data()?;
        drop(file);
        let is_intact = fs::read(aside)? == bytes;
        if is_intact { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
    }
}

fn is_abandoned(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
}

impl BlockStore for FileStore {
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()> {
        self.written += 1;
        let aside = self.folder.join(format!("{key}-{:016x}-{}.{ASIDE}", self.id, self.written));
        // A file that was there before belongs to another store.
        let file = File::create_new(&aside)?;
        let written = Self::write(file, &aside, bytes).and_then(|()| fs::rename(&aside, self.path(key)));
        if written.is_err() {
            // The first error is the one that matters.
            let _ = fs::remove_file(&aside);
        }
        written
    }

    fn get(&mut self, key: BlockKey, limit: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let file = match File::open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(limit);
        bytes.try_reserve_exact(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        file.take(limit as u64).read_to_end(bytes).map(|_| true)
    }

    fn contains(&mut self, key: BlockKey) -> io::Result<bool> {
        match fs::metadata(self.path(key)) {
            Ok(metadata) => Ok(metadata.is_file()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove(&mut self, key: BlockKey) -> io::Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const KEY: BlockKey = BlockKey { hash: 5, shard: 0, group: 1, index: 2, tokens: 16 };

    #[test]
    fn stores_of_one_folder_do_not_disturb_each_other() {
        let folder = std::env::temp_dir().join(format!("orlop-kv-asides-{}", std::process::id()));
        let mut first = FileStore::open(&folder).unwrap();
        let fresh = folder.join("another store's.kv-aside");
        let old = folder.join("an ended process's.kv-aside");
        for path in [&fresh, &old] {
            File::create_new(path).unwrap();
        }
        let days = SystemTime::now() - 2 * ABANDONED;
        File::options().write(true).open(&old).unwrap().set_modified(days).unwrap();
        let second = FileStore::open(&folder).unwrap();
        assert_ne!(first.id, second.id, "their files aside have different names");
        assert_eq!((fresh.exists(), old.exists()), (true, false));
        // A file in the way is left as it is.
        let aside = folder.join(format!("{KEY}-{:016x}-1.{ASIDE}", first.id));
        fs::write(&aside, b"another's").unwrap();
        assert_eq!(first.put(KEY, b"block").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&aside).unwrap(), b"another's");
        first.put(KEY, b"block").unwrap();
        let mut bytes = Vec::new();
        assert!(first.get(KEY, 3, &mut bytes).unwrap());
        assert_eq!(bytes, b"blo", "no more than the limit is read");
        fs::remove_dir_all(&folder).unwrap();
    }
}
