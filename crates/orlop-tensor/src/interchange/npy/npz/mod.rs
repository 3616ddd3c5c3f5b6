//! `.npz`: named arrays, each a `.npy` file in one zip archive, compressed or not.
//!
//! ```
//! use orlop_core::DType;
//! use orlop_tensor::Tensor;
//! use orlop_tensor::interchange::npy::npz::{self, Compression};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("layer.npz");
//! let weight = Tensor::ones([4, 3], DType::F32)?;
//! let bias = Tensor::zeros([4], DType::F32)?;
//! npz::write(&path, [("weight", &weight), ("bias", &bias)], Compression::Deflate)?;
//!
//! let layer = npz::read(&path)?;
//! assert_eq!(layer.names().collect::<Vec<_>>(), ["weight", "bias"]);
//! assert_eq!(layer.get("bias").map(Tensor::sizes), Some(&[4][..]));
//! # Ok::<(), orlop_tensor::Error>(())
//! ```
//!
//! [`NpzReader`] reads arrays one by one, and does not read the others.

mod reader;
mod writer;

pub use self::reader::NpzReader;
pub use self::writer::{Compression, write, write_to};

use super::{NpyError, ReadOptions, at};
use crate::error::Result;
use crate::interchange::NamedTensors;
use std::io::Cursor;
use std::path::Path;
use zip::result::ZipError;

/// The suffix of an array's entry.
const SUFFIX: &str = ".npy";

/// Reads all arrays of a `.npz` file.
///
/// # Errors
///
/// [`NpyError`], wrapped in [`NpyError::Entry`] if one array failed; out of memory.
pub fn read(path: impl AsRef<Path>) -> Result<NamedTensors> {
    read_with(path, &ReadOptions::new())
}

/// [`read`] with options.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<NamedTensors> {
    let path = path.as_ref();
    NpzReader::open_with(path, options)?.read_all().map_err(|error| at(path, error))
}

/// Reads all arrays of a `.npz` file from memory.
///
/// # Errors
///
/// Those of [`read`].
pub fn from_bytes(bytes: &[u8], options: &ReadOptions) -> Result<NamedTensors> {
    NpzReader::new(Cursor::new(bytes), options)?.read_all()
}

fn zip_error(error: ZipError) -> NpyError {
    match error {
        ZipError::Io(source) => NpyError::Stream { source },
        source => NpyError::Zip { source },
    }
}
