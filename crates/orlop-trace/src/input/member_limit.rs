//! The limit for the decompressed bytes of an archive's members: of each, and of all together.

use super::{Bomb, unpacked_limit};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// The decompressed bytes of an archive that were read, and what is allowed for its length. Many members
/// could each stay below their own limit.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveLimit {
    read: Rc<Cell<u64>>,
    limit: u64,
}

impl ArchiveLimit {
    /// Creates the limit for an archive of `length` bytes.
    pub(crate) fn new(length: u64) -> Self {
        Self { read: Rc::default(), limit: unpacked_limit(length) }
    }

    /// Returns the limit for a member of `packed` bytes.
    pub(crate) fn member(&self, packed: u64) -> MemberLimit {
        MemberLimit { packed, archive: self.clone() }
    }

    /// Counts `bytes` decompressed bytes of a member.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let read = self.read.get().saturating_add(bytes as u64);
        self.read.set(read);
        let limit = self.limit;
        if read > limit { Err(io::Error::other(Bomb::Archive { limit })) } else { Ok(()) }
    }
}

/// The limit for a member.
#[derive(Debug, Clone)]
pub(crate) struct MemberLimit {
    packed: u64,
    archive: ArchiveLimit,
}

impl MemberLimit {
    /// Counts `bytes` decompressed bytes for the archive. Returns the member's compressed length, which
    /// limits its own.
    pub(crate) fn count(&self, bytes: usize) -> io::Result<u64> {
        self.archive.add(bytes).map(|()| self.packed)
    }
}
