//! What can go wrong with NumPy's files.

use orlop_core::DType;
use std::io;
use std::path::Path;

/// A NumPy file that is none, or that a tensor cannot be read from or written to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
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
    #[error("not an npy file: it begins otherwise")]
    NotNpy,
    /// A version of the format that is not 1.0, 2.0 or 3.0.
    #[error("npy version {major}.{minor} is unknown: 1.0, 2.0 and 3.0 are read")]
    UnknownVersion {
        /// Before the dot.
        major: u8,
        /// After it.
        minor: u8,
    },
    /// A file that ends before its elements begin.
    #[error("the file ends within its header")]
    ShortHeader,
    /// A header longer than that of any array.
    #[error("the header has {bytes} bytes, more than the {limit} of any array")]
    HeaderTooLong {
        /// What it claims to have.
        bytes: usize,
        /// What it may have.
        limit: usize,
    },
    /// A header that is no Python dictionary of the kind it should be.
    #[error("byte {at} of the header is not {expected}")]
    Header {
        /// Which byte of it.
        at: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A header without one of its three keys.
    #[error("the header does not tell {key:?}")]
    MissingKey {
        /// Which.
        key: &'static str,
    },
    /// Elements of several fields.
    #[error("the elements are structures: save each field as an array of its own")]
    StructuredDType,
    /// A dtype that tensors do not have: objects, texts, dates, and floats of the machine's longest kind.
    #[error("tensors have no dtype like NumPy's {descr:?}: convert the array to numbers before it is saved")]
    UnsupportedDType {
        /// Its name in the header.
        descr: Box<str>,
    },
    /// A dtype that the format has no name for.
    #[error("npy has no name for {dtype}: cast the tensor with `to_dtype`, or write a safetensors file")]
    NoDescr {
        /// The tensor's dtype.
        dtype: DType,
    },
    /// The file ends too early.
    #[error("{expected} bytes of elements should follow the header, and {actual} do")]
    Truncated {
        /// What the shape and the dtype need.
        expected: u64,
        /// What there is.
        actual: u64,
    },
    /// The file goes on after the last element.
    #[error("more bytes follow the header than the {expected} of the elements")]
    TrailingBytes {
        /// What the shape and the dtype need.
        expected: u64,
    },
    /// More bytes of elements than the limit allows.
    #[error("{bytes} bytes of elements are above the limit of {limit}: raise `ReadOptions::max_bytes`")]
    TooLarge {
        /// What there would be.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More arrays than the limit allows.
    #[error("{entries} arrays are above the limit of {limit}: raise `ReadOptions::max_entries`")]
    TooManyEntries {
        /// What there is.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// Not the archive of an `.npz` file, or not one that can be read.
    #[error("not an npz file: {source}")]
    Zip {
        /// What is wrong with the archive.
        source: zip::result::ZipError,
    },
    /// Entries of the archive that lie in the same bytes, as only bombs have them.
    #[error("the entries take {bytes} bytes of a file of {file_bytes}: they overlap")]
    OverlappingEntries {
        /// What they take together, packed.
        bytes: u64,
        /// What the file has.
        file_bytes: u64,
    },
    /// An entry of the archive that is not called `.npy`.
    #[error("entry {name:?} is no array: read the others one by one, with `NpzReader`")]
    NotAnArray {
        /// The entry.
        name: Box<str>,
    },
    /// No array of this name.
    #[error("no array is called {name:?}")]
    NoEntry {
        /// The name.
        name: Box<str>,
    },
    /// Two arrays of the same name.
    #[error("two arrays are called {name:?}: a name is there once")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// A name that is longer than an archive can hold.
    #[error("a name of {bytes} bytes is longer than the {limit} that an npz file can hold")]
    NameTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// One array of several failed.
    #[error("array {name:?}: {source}")]
    Entry {
        /// Which.
        name: Box<str>,
        /// What is wrong with it.
        source: Box<NpyError>,
    },
}
