//! Errors of the safetensors format.

use orlop_core::DType;
use std::collections::TryReserveError;
use std::io;
use std::path::{Path, PathBuf};

/// An error of reading or writing a file of this format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// A file could not be opened, read, mapped or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: Box<Path>,
        /// The I/O error.
        source: io::Error,
    },
    /// A malformed file, or malformed bytes.
    #[error("{}{flaw}", prefix(path.as_deref()))]
    Malformed {
        /// The file, unless the bytes came from memory.
        path: Option<Box<Path>>,
        /// The flaw.
        flaw: Box<Flaw>,
    },
    /// A file does not have a tensor that the index assigns to it.
    #[error("{} has no tensor `{name}`, as the index says", path.display())]
    MissingTensor {
        /// The tensor.
        name: Box<str>,
        /// The file.
        path: Box<Path>,
    },
    /// The format does not have the tensor's dtype.
    #[error("tensor `{name}` is {dtype}, which the format does not support")]
    NoSuchDType {
        /// The tensor.
        name: Box<str>,
        /// Its dtype.
        dtype: DType,
    },
    /// Two tensors with one name.
    #[error("two tensors are named `{name}`")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// A name that the format reserves.
    #[error("the name `{name}` is reserved")]
    ReservedName {
        /// The name.
        name: &'static str,
    },
    /// A header above the size limit of readers.
    #[error("the header would have {bytes} bytes, above the limit of {limit}")]
    HeaderTooLarge {
        /// The bytes of the header.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The header could not be serialized as JSON.
    #[error("the header cannot be written: {source}")]
    Json {
        /// The reason.
        source: serde_json::Error,
    },
    /// The heap cannot hold the file.
    #[error("no memory for a file of {bytes} bytes: {source}")]
    OutOfMemory {
        /// The bytes of the file.
        bytes: usize,
        /// The heap's error.
        source: TryReserveError,
    },
}

/// The flaw of a file. Offsets count from the end of the header, as in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The file is shorter than the length field of the header.
    #[error("{bytes} bytes cannot hold the header's length field of 8")]
    TooShort {
        /// The bytes of the file.
        bytes: u64,
    },
    /// The header, or the index, exceeds the size limit.
    #[error("a header of {bytes} bytes exceeds the limit of {limit}")]
    HeaderTooLarge {
        /// The bytes that it has or states.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// The header exceeds the file.
    #[error("a header of {header_bytes} bytes exceeds the file of {file_bytes}")]
    HeaderTruncated {
        /// The size of the header according to the file.
        header_bytes: u64,
        /// The bytes of the file.
        file_bytes: u64,
    },
    /// The header is not JSON, or has values of wrong types.
    #[error("not a header or index: {source}")]
    Json {
        /// The position and kind of the error.
        #[from]
        source: serde_json::Error,
    },
    /// A duplicate name.
    #[error("the name `{name}` is used twice")]
    Duplicate {
        /// The name.
        name: Box<str>,
    },
    /// An unknown dtype, or one without a counterpart in [`DType`].
    #[error("tensor `{tensor}` is {dtype}, which is not supported")]
    DType {
        /// The tensor.
        tensor: Box<str>,
        /// The dtype in the file.
        dtype: Box<str>,
    },
    /// Sizes whose product is out of range.
    #[error("tensor `{tensor}`: {source}")]
    Shape {
        /// The tensor.
        tensor: Box<str>,
        /// The reason.
        source: orlop_core::Error,
    },
    /// A range that ends before its start.
    #[error("tensor `{tensor}` begins at byte {begin} and ends at byte {end}")]
    Reversed {
        /// The tensor.
        tensor: Box<str>,
        /// Its first byte.
        begin: usize,
        /// One past its last.
        end: usize,
    },
    /// A range whose length does not match shape and dtype.
    #[error("tensor `{tensor}` has {actual} bytes, but its shape and dtype need {expected}")]
    Length {
        /// The tensor.
        tensor: Box<str>,
        /// The bytes that shape and dtype need.
        expected: usize,
        /// The bytes of the range.
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
    /// Bytes before a tensor that belong to no tensor.
    #[error("bytes {hole} to {begin}, before tensor `{tensor}`, belong to no tensor")]
    Hole {
        /// The tensor.
        tensor: Box<str>,
        /// The first byte that belongs to no tensor.
        hole: usize,
        /// The first byte of the tensor.
        begin: usize,
    },
    /// A tensor that exceeds the file.
    #[error("tensor `{tensor}` ends at byte {end} of {data_bytes}: the file is truncated or damaged")]
    Truncated {
        /// The tensor.
        tensor: Box<str>,
        /// One past its last byte.
        end: usize,
        /// The bytes after the header.
        data_bytes: usize,
    },
    /// Bytes at the end that belong to no tensor.
    #[error("the tensors end at byte {end} of {data_bytes}")]
    Trailing {
        /// One past the last byte of the last tensor.
        end: usize,
        /// The bytes after the header.
        data_bytes: usize,
    },
    /// An index entry with a path outside its folder.
    #[error("tensor `{tensor}` is assigned to {}, which is not inside the index's folder", file.display())]
    LeavesFolder {
        /// The tensor.
        tensor: Box<str>,
        /// The path in the index.
        file: PathBuf,
    },
}

impl Flaw {
    /// Returns an error about this file.
    pub(crate) fn of(self, path: Option<&Path>) -> SafetensorsError {
        SafetensorsError::Malformed { path: path.map(Box::from), flaw: Box::new(self) }
    }
}

impl SafetensorsError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.into(), source }
    }
}

fn prefix(path: Option<&Path>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

// `Result`s of the whole crate carry it.
const _: () = assert!(size_of::<SafetensorsError>() <= 48);
