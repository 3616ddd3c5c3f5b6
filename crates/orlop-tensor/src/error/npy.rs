//! Errors of NumPy's file formats.

use orlop_core::DType;
use std::io;
use std::path::Path;

/// An error of reading or writing a NumPy file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
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
    #[error("not an npy file: the magic bytes do not match")]
    NotNpy,
    /// A format version other than 1.0, 2.0 and 3.0.
    #[error("npy version {major}.{minor} is not supported: 1.0, 2.0 and 3.0 are")]
    UnknownVersion {
        /// The major version.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// The file ends inside its header.
    #[error("the file ends inside its header")]
    ShortHeader,
    /// A header above the size limit.
    #[error("the header has {bytes} bytes, above the limit of {limit}")]
    HeaderTooLong {
        /// The size that the file states.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A header that is not the expected Python dictionary.
    #[error("byte {at} of the header is not {expected}")]
    Header {
        /// The index of the byte.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A header without one of its three keys.
    #[error("the header has no key {key:?}")]
    MissingKey {
        /// The missing key.
        key: &'static str,
    },
    /// Elements with several fields.
    #[error("the elements are structures: save each field as an array of its own")]
    StructuredDType,
    /// A dtype without a counterpart: objects, strings, dates, and `longdouble`.
    #[error("no dtype corresponds to NumPy's {descr:?}: convert the array to numbers before saving it")]
    UnsupportedDType {
        /// The descriptor in the header.
        descr: Box<str>,
    },
    /// A dtype that the format cannot express.
    #[error("npy has no name for {dtype}: cast the tensor with `to_dtype`, or write a safetensors file")]
    NoDescr {
        /// The tensor's dtype.
        dtype: DType,
    },
    /// The file ends too early.
    #[error("{expected} bytes of elements are needed after the header, but there are {actual}")]
    Truncated {
        /// The bytes that shape and dtype need.
        expected: u64,
        /// The bytes in the file.
        actual: u64,
    },
    /// The file continues after the last element.
    #[error("the file has more bytes after the header than the {expected} of the elements")]
    TrailingBytes {
        /// The bytes that shape and dtype need.
        expected: u64,
    },
    /// More bytes of elements than the limit allows.
    #[error("{bytes} bytes of elements exceed the limit of {limit}: raise `ReadOptions::max_bytes`")]
    TooLarge {
        /// The bytes of the elements.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More arrays than the limit allows.
    #[error("{entries} arrays exceed the limit of {limit}: raise `ReadOptions::max_entries`")]
    TooManyEntries {
        /// The number of arrays.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// Not a zip archive, or not a readable one.
    #[error("not an npz file: {source}")]
    Zip {
        /// The error of the archive.
        source: zip::result::ZipError,
    },
    /// Archive entries with overlapping data, as in zip bombs.
    #[error("the entries take {bytes} bytes of a file of {file_bytes}: they overlap")]
    OverlappingEntries {
        /// The total compressed size of the entries.
        bytes: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// An archive entry without the suffix `.npy`.
    #[error("entry {name:?} is not an array: read the others one by one, with `NpzReader`")]
    NotAnArray {
        /// The name of the entry.
        name: Box<str>,
    },
    /// Two arrays with one name.
    #[error("two arrays are named {name:?}: names must be unique")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// A name longer than an archive allows.
    #[error("a name has {bytes} bytes, more than the {limit} that an npz file allows")]
    NameTooLong {
        /// The length of the name.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// One of several arrays failed.
    #[error("array {name:?}: {source}")]
    Entry {
        /// The name of the array.
        name: Box<str>,
        /// The error.
        source: Box<NpyError>,
    },
}
