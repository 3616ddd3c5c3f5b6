//! Memory-mapped files.
//!
//! Mapped memory shows the file. If the file is truncated, touching the lost pages ends the process; if
//! another program writes to it, references see values change. Nothing here can prevent either, so mapping is
//! unsafe, up to the public functions that offer it.
//!
//! The mapping is read-only, and its [`Storage`] is immutable: no write is ever allowed, which would end the
//! process, and nothing replaces or releases the memory before the last handle is dropped.

use crate::Storage;
use memmap2::MmapOptions;
use orlop_core::MemoryKind;
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Maps a file, from the start of a page, as an immutable storage of kind
/// [`Persistent`](MemoryKind::Persistent).
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
    let mapping = unsafe { MmapOptions::new().map(&file) }?;
    let (ptr, bytes) = (NonNull::from(&*mapping).cast::<u8>(), mapping.len());
    // SAFETY: the mapping does not move when its owner moves, is accessed only through the storage, is
    // initialised, and ends when the owner is dropped; the caller guarantees that it stays valid. It is never
    // written: writes are refused below, for good, before anything else has the storage.
    let storage = unsafe { Storage::mapped(ptr, bytes, MemoryKind::Persistent, mapping) };
    storage.mark_immutable("it is a mapped file");
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
        assert!(matches!(storage.write(), Err(Error::ReadOnly { .. })));
        assert!(matches!(storage.clear(), Err(Error::ReadOnly { .. })));
        let copy = storage.lazy_clone().unwrap();
        copy.write().unwrap()[0] = b'O';
        assert_eq!((&*copy.read().unwrap(), &*storage.read().unwrap()), (&b"Orlop"[..], &b"orlop"[..]));
        assert!(matches!(storage.resize(10), Err(Error::ReadOnly { .. })));
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
