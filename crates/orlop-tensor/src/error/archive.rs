//! Errors of archives.

use orlop_core::{Device, MemoryKind};
use std::io;
use std::path::Path;

/// An error of reading or writing an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: Box<Path>,
        /// The I/O error.
        source: io::Error,
    },
    /// A reader or writer without a path failed.
    #[error("reading or writing failed: {source}")]
    Stream {
        /// The I/O error.
        #[from]
        source: io::Error,
    },
    /// The file does not start with the magic bytes.
    #[error("not an archive of tensors: the magic bytes do not match")]
    NotAnArchive,
    /// A later version of the format.
    #[error("version {found} of the format is not supported, up to {known} is: load it with a later release")]
    UnknownVersion {
        /// The version of the file.
        found: u32,
        /// The latest supported version.
        known: u32,
    },
    /// The archive was written on a machine with another byte order.
    #[error("the archive has another byte order than this machine")]
    ByteOrder,
    /// A header above the size limit.
    #[error("the header has {bytes} bytes, above the limit of {limit}: save fewer tensors in one archive")]
    HeaderTooLong {
        /// The size of the header.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A header that does not parse.
    #[error("the header is damaged: {source}")]
    Header {
        /// The position and kind of the error.
        source: serde_json::Error,
    },
    /// A header that does not match its checksum.
    #[error("the header is damaged: its checksum does not match")]
    HeaderChecksum,
    /// A storage that does not match its checksum.
    #[error("storage {storage} is damaged: its checksum does not match")]
    Checksum {
        /// The index of the storage in the file.
        storage: usize,
    },
    /// Padding that is not zero.
    #[error("the archive is damaged: the padding between header and storages is not zero")]
    Padding,
    /// The file is shorter than its header says.
    #[error("the archive ends after {actual} of {expected} bytes")]
    Truncated {
        /// The size according to the header.
        expected: u64,
        /// The size of the file.
        actual: u64,
    },
    /// The file is longer than its header says.
    #[error("the archive has more than the {expected} bytes of its header and storages")]
    TrailingBytes {
        /// The size according to the header.
        expected: u64,
    },
    /// A storage at an offset other than the aligned end of its predecessor.
    #[error("storage {storage} cannot be at offset {actual}: it must follow its predecessor")]
    Misplaced {
        /// The index of the storage in the file.
        storage: usize,
        /// The offset in the header, in bytes from the first storage.
        actual: usize,
    },
    /// A tensor of a storage that the archive does not have.
    #[error("tensor {name:?} is in storage {storage}, but there are {storages}")]
    NoStorage {
        /// The name of the tensor.
        name: Box<str>,
        /// The index of its storage.
        storage: usize,
        /// The number of storages.
        storages: usize,
    },
    /// A tensor with invalid sizes, strides or offset, or one that exceeds its storage.
    #[error("tensor {name:?}: {source}")]
    View {
        /// The name of the tensor.
        name: Box<str>,
        /// The reason.
        source: orlop_core::Error,
    },
    /// Two tensors with one name.
    #[error("two tensors are named {name:?}: names must be unique")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// No allocator is registered for memory that the archive needs.
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
