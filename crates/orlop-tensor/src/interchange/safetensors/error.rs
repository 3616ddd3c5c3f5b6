//! What can be wrong with a file, or with what is to become one.

use orlop_core::DType;
use std::collections::TryReserveError;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with files of this format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The system did not open, read, map or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: Box<Path>,
        /// What it said.
        source: io::Error,
    },
    /// A file, or bytes in memory, are not what they should be.
    #[error("{}{flaw}", prefix(path.as_deref()))]
    Malformed {
        /// Which file, if it is one.
        path: Option<Box<Path>>,
        /// What is wrong.
        flaw: Box<Flaw>,
    },
    /// A tensor was asked for that is not there.
    #[error("there is no tensor `{name}`")]
    NoSuchTensor {
        /// What was asked for.
        name: Box<str>,
    },
    /// The index says that a file has a tensor, and the file does not.
    #[error("{} has no tensor `{name}`, as the index says", path.display())]
    MissingTensor {
        /// The tensor.
        name: Box<str>,
        /// The file.
        path: Box<Path>,
    },
    /// The format has no such elements.
    #[error("tensor `{name}` holds {dtype}, for which the format has no name")]
    NoSuchDType {
        /// The tensor.
        name: Box<str>,
        /// What it holds.
        dtype: DType,
    },
    /// Two tensors were to be written under one name.
    #[error("there are two tensors `{name}`")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// The format needs the name for something else.
    #[error("no tensor can have the name `{name}`")]
    ReservedName {
        /// The name.
        name: &'static str,
    },
    /// The names and shapes take more bytes than readers accept.
    #[error("the header would have {bytes} bytes, and readers accept {limit}")]
    HeaderTooLarge {
        /// Bytes of the header.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A header did not become JSON.
    #[error("the header cannot be written: {source}")]
    Json {
        /// Why not.
        source: serde_json::Error,
    },
    /// The heap has no room for the file.
    #[error("no memory for a file of {bytes} bytes: {source}")]
    OutOfMemory {
        /// Bytes of the file.
        bytes: usize,
        /// What the heap said.
        source: TryReserveError,
    },
}

/// What is wrong with a file. Offsets count from the end of the header, as in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Too short to say how long its header is.
    #[error("{bytes} bytes cannot hold the length of a header, which takes 8")]
    TooShort {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The header, or the index, is larger than is accepted.
    #[error("a header of {bytes} bytes, where {limit} are accepted")]
    HeaderTooLarge {
        /// Bytes it has or says to have.
        bytes: u64,
        /// The most there may be.
        limit: usize,
    },
    /// The header reaches beyond the file.
    #[error("a header of {header_bytes} bytes in a file of {file_bytes}")]
    HeaderTruncated {
        /// Bytes that the header says to have.
        header_bytes: u64,
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// Not JSON, or not with the values that belong there.
    #[error("not a header or index: {source}")]
    Json {
        /// Where and what.
        #[from]
        source: serde_json::Error,
    },
    /// A name that is there twice.
    #[error("`{name}` is there twice")]
    Duplicate {
        /// The name.
        name: Box<str>,
    },
    /// A dtype that is not known, or that has no counterpart in [`DType`].
    #[error("tensor `{tensor}` holds {dtype}, which is no dtype that tensors can have here")]
    DType {
        /// The tensor.
        tensor: Box<str>,
        /// What the file says.
        dtype: Box<str>,
    },
    /// Sizes whose product is out of range.
    #[error("tensor `{tensor}`: {source}")]
    Shape {
        /// The tensor.
        tensor: Box<str>,
        /// Why it is no shape.
        source: orlop_core::Error,
    },
    /// A range that ends before it begins.
    #[error("tensor `{tensor}` begins at byte {begin} and ends at byte {end}")]
    Reversed {
        /// The tensor.
        tensor: Box<str>,
        /// Its first byte.
        begin: usize,
        /// One past its last.
        end: usize,
    },
    /// Shape and dtype need another number of bytes.
    #[error("tensor `{tensor}` has {actual} bytes, and its shape and dtype need {expected}")]
    Length {
        /// The tensor.
        tensor: Box<str>,
        /// What shape and dtype need.
        expected: usize,
        /// What the offsets give it.
        actual: usize,
    },
    /// Two tensors share bytes.
    #[error("tensor `{tensor}` begins at byte {begin}, before `{previous}` ends at byte {previous_end}")]
    Overlap {
        /// The tensor.
        tensor: Box<str>,
        /// Its first byte.
        begin: usize,
        /// The tensor before it.
        previous: Box<str>,
        /// One past the last byte of that.
        previous_end: usize,
    },
    /// Bytes before a tensor that belong to none.
    #[error("bytes {hole} to {begin}, before tensor `{tensor}`, belong to no tensor")]
    Hole {
        /// The tensor.
        tensor: Box<str>,
        /// The first byte that belongs to none.
        hole: usize,
        /// Its first byte.
        begin: usize,
    },
    /// The file ends before the tensor does.
    #[error("tensor `{tensor}` ends at byte {end} of {data_bytes}: the file was cut off, or lies")]
    Truncated {
        /// The tensor.
        tensor: Box<str>,
        /// One past its last byte.
        end: usize,
        /// Bytes behind the header.
        data_bytes: usize,
    },
    /// Bytes at the end that belong to no tensor.
    #[error("the tensors end at byte {end} of {data_bytes}")]
    Trailing {
        /// One past the last byte of the last tensor.
        end: usize,
        /// Bytes behind the header.
        data_bytes: usize,
    },
    /// An index that leads out of its folder.
    #[error("tensor `{tensor}` should be in {}, which is no path inside the index's folder", file.display())]
    LeavesFolder {
        /// The tensor.
        tensor: Box<str>,
        /// Where the index says that it is.
        file: PathBuf,
    },
}

impl Flaw {
    /// As an error about this file.
    pub(super) fn of(self, path: Option<&Path>) -> SafetensorsError {
        SafetensorsError::Malformed { path: path.map(Box::from), flaw: Box::new(self) }
    }
}

impl SafetensorsError {
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.into(), source }
    }
}

fn prefix(path: Option<&Path>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

// Results of the whole crate carry it.
const _: () = assert!(size_of::<SafetensorsError>() <= 48);
