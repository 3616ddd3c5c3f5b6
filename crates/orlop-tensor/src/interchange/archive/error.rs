//! What can go wrong with archives.

use orlop_core::{Device, MemoryKind};
use std::io;
use std::path::Path;

/// An archive that is none, or that cannot be written or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: Box<Path>,
        /// What the system says.
        source: io::Error,
    },
    /// A reader or writer that is not known by a path failed.
    #[error("reading or writing failed: {source}")]
    Stream {
        /// What it says.
        #[from]
        source: io::Error,
    },
    /// The first bytes are not those of the format.
    #[error("not an archive of tensors: it begins otherwise")]
    NotAnArchive,
    /// A later version of the format.
    #[error("version {found} of the format is unknown, {known} is the latest: load it with a later release")]
    UnknownVersion {
        /// The file's.
        found: u32,
        /// The latest that is read here.
        known: u32,
    },
    /// The archive was written on a machine that has the bytes of a number in another order.
    #[error("the archive's numbers are in the other order of bytes than this machine's")]
    ByteOrder,
    /// A header longer than any should be.
    #[error("the header has {bytes} bytes, and may have {limit}: save fewer tensors in one archive")]
    HeaderTooLong {
        /// What it has.
        bytes: u64,
        /// What it may have.
        limit: u64,
    },
    /// A header that does not say what it should.
    #[error("the header is damaged: {source}")]
    Header {
        /// Where and how.
        source: serde_json::Error,
    },
    /// A header that changed since it was written.
    #[error("the header is damaged: its checksum is another")]
    HeaderChecksum,
    /// Bytes of a storage that changed since they were written.
    #[error("storage {storage} is damaged: its checksum is another")]
    Checksum {
        /// Which, in the file's order.
        storage: usize,
    },
    /// Something where nothing should be.
    #[error("the archive is damaged: what lies between header and storages is not zero")]
    Padding,
    /// The file is shorter than its header says.
    #[error("the archive ends after {actual} of {expected} bytes")]
    Truncated {
        /// Bytes that the header accounts for.
        expected: u64,
        /// Bytes that are there.
        actual: u64,
    },
    /// The file is longer than its header says.
    #[error("the archive goes on after its {expected} bytes")]
    TrailingBytes {
        /// Bytes that the header accounts for.
        expected: u64,
    },
    /// A storage that is not where it should be: behind the one before, aligned.
    #[error("storage {storage} is said to be at {actual}, and is not: it follows the one before")]
    Misplaced {
        /// Which, in the file's order.
        storage: usize,
        /// What the header says, in bytes from the first storage.
        actual: usize,
    },
    /// A tensor of a storage that is not there.
    #[error("tensor {name:?} is in storage {storage} of {storages}")]
    NoStorage {
        /// The tensor.
        name: Box<str>,
        /// Its storage.
        storage: usize,
        /// How many there are.
        storages: usize,
    },
    /// A tensor whose sizes, strides and offset are none, or lead out of its storage.
    #[error("tensor {name:?}: {source}")]
    View {
        /// The tensor.
        name: Box<str>,
        /// Why not.
        source: orlop_core::Error,
    },
    /// Two tensors of the same name.
    #[error("two tensors are called {name:?}: a name is there once")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// Nobody has memory on the device that the archive asks for.
    #[error(
        "no allocator is registered for {kind} memory on {device}: register one, or load with `map_device`"
    )]
    NoAllocator {
        /// The device.
        device: Device,
        /// The kind of memory.
        kind: MemoryKind,
    },
}
