//! Files as memory: the one place that maps any.
//!
//! Whoever looks at mapped memory looks at the file. If the file becomes shorter, touching what is gone ends the process;
//! if somebody writes to it, references show values that change. Nothing here can see to that, so mapping is unsafe, and
//! stays so up to the public functions that do it.
//!
//! The mapping is private: what is written to it goes to pages of this process and never to the file. A
//! [`Storage`] must be writable memory, and this one is, although it refuses writes until somebody allows them; were it
//! mapped for reading only, allowing them would be the end of the process. No swap is reserved for those pages, so that
//! a file larger than the memory can be mapped; only a system that never overcommits counts them.

use crate::Storage;
use memmap2::MmapOptions;
use orlop_core::MemoryKind;
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// The bytes of a file, from the start of a page on, as a storage of kind [`Persistent`](MemoryKind::Persistent) that
/// refuses writes.
///
/// # Errors
///
/// What the system says to opening or mapping it.
///
/// # Safety
///
/// As long as a handle to the storage lives:
///
/// 1. the file becomes no shorter;
/// 2. nobody writes to it.
pub(crate) unsafe fn map(path: &Path) -> io::Result<Storage> {
    let file = File::open(path)?;
    // SAFETY: nobody changes the file while the mapping lives, which is as long as the storage that owns it: the caller's
    // promises.
    let mut mapping = unsafe { MmapOptions::new().no_reserve_swap().map_copy(&file) }?;
    let bytes = mapping.len();
    let ptr = NonNull::from(&mut *mapping).cast::<u8>();
    // SAFETY: the mapping stays where it is while its owner moves, is reached through the storage only, is initialised,
    // may be written (to private pages), and ends when the owner is dropped; the caller's promises keep all of it valid.
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
        // SAFETY: nobody else knows the file.
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
        // SAFETY: nobody else knows the file.
        let map = |path| unsafe { map(path) };
        assert_eq!(map(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(map(folder.path()).is_err());
        std::fs::write(&path, b"").unwrap();
        assert_eq!(map(&path).unwrap().nbytes(), 0);
    }
}
