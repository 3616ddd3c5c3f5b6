//! Memory-mapped files.
//!
//! Mapped memory shows the file. If the file is truncated, touching the lost pages ends the process; if
//! another program writes to it, references see values change. Nothing here can prevent either, so mapping is
//! unsafe, up to the public functions that offer it.
//!
//! The mapping is private: writes go to pages of this process and never to the file. A [`Storage`] must be
//! writable memory, and this one is, although it refuses writes until they are allowed; with a read-only
//! mapping, allowing them would end the process. No swap is reserved for these pages, so a file larger than
//! the memory can be mapped; only a system that never overcommits counts them.

use crate::Storage;
use memmap2::MmapOptions;
use orlop_core::MemoryKind;
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Maps a file, from the start of a page, as a storage of kind [`Persistent`](MemoryKind::Persistent) that
/// refuses writes.
///
/// # Errors
///
/// The error of opening or mapping the file.
///
/// # Safety
///
/// While a handle to the storage exists:
///
/// 1. the file is not truncated;
/// 2. nothing writes to the file.
pub(crate) unsafe fn map(path: &Path) -> io::Result<Storage> {
    let file = File::open(path)?;
    // SAFETY: the file does not change while the mapping exists, which is as long as the storage that owns it
    // (guaranteed by the caller).
    let mut mapping = unsafe { MmapOptions::new().no_reserve_swap().map_copy(&file) }?;
    let bytes = mapping.len();
    let ptr = NonNull::from(&mut *mapping).cast::<u8>();
    // SAFETY: the mapping does not move when its owner moves, is accessed only through the storage, is
    // initialised, may be written (to private pages), and ends when the owner is dropped; the caller
    // guarantees that it stays valid.
    let storage = unsafe { Storage::mapped(ptr, bytes, MemoryKind::Persistent, mapping) };
    storage.refuse_writes("it is a mapped file");
    Ok(storage)
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_file_is_memory_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"orlop").unwrap();
        // SAFETY: nothing else uses the file.
        let storage = unsafe { map(&path) }.unwrap();
        assert_eq!(
            (&*storage.read().unwrap(), storage.memory_kind()),
            (&b"orlop"[..], MemoryKind::Persistent)
        );
        assert_eq!(storage.as_ptr().unwrap().addr() % 4096, 0);
        let refused = storage.write().unwrap_err();
        assert_eq!(refused.to_string(), "the storage is read-only: it is a mapped file");

        storage.allow_access();
        storage.write().unwrap()[0] = b'O';
        assert_eq!(&*storage.read().unwrap(), b"Orlop");
        assert_eq!(std::fs::read(&path).unwrap(), b"orlop");
        assert!(matches!(storage.resize(10), Err(Error::NotResizable { .. })));
    }

    #[test]
    fn nothing_is_mapped_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // SAFETY: nothing else uses the file.
        let map = |path| unsafe { map(path) };
        assert_eq!(map(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(map(folder.path()).is_err());
        std::fs::write(&path, b"").unwrap();
        assert_eq!(map(&path).unwrap().nbytes(), 0);
    }
}
