//! NumPy's files: `.npy`, an array, and [`.npz`](npz), arrays by name.
//!
//! ```
//! use orlop_core::DType;
//! use orlop_tensor::Tensor;
//! use orlop_tensor::interchange::npy;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("matrix.npy");
//! let matrix = Tensor::arange(0.0, 6.0, 1.0, DType::F32)?.view([2, 3])?;
//! npy::write(&path, &matrix)?; // numpy.load("matrix.npy")
//! let again = npy::read(&path)?;
//! assert_eq!(again.sizes(), [2, 3]);
//! assert_eq!(again.to_vec::<f32>()?, matrix.to_vec::<f32>()?);
//! # Ok::<(), orlop_tensor::Error>(())
//! ```
//!
//! # What goes in and what comes out
//!
//! | in the file | the tensor |
//! |---|---|
//! | `bool`, `int8` to `int64`, `uint8` to `uint64` | the dtype of the same name |
//! | `float16`, `float32`, `float64`, `complex64`, `complex128` | the dtype of the same name |
//! | either order of bytes | this machine's |
//! | `fortran_order` | column-major strides over the same bytes: nothing is transposed |
//! | bytes of bools other than 0 and 1 | true, as 1 |
//!
//! Tensors are read into memory of the CPU; [`Tensor::to_device`] takes them elsewhere. Tensors from
//! elsewhere are fetched to be written. `bfloat16` and the 8-bit floats have no name in this format and are
//! [refused](NpyError::NoDescr), as are, on the way in, arrays of objects, texts, dates and structures:
//! nothing is ever unpickled.
//!
//! What is written is byte for byte what NumPy writes for the same array. A file is written beside its place
//! and then takes it, so it is there whole or not at all.
//!
//! # Files nobody vouches for
//!
//! A header that lies is an error: bytes too few or too many, sizes that overflow, keys that are missing,
//! unknown or there twice. Memory is allocated for as many bytes as the file really has; where that is not
//! known, in streams and compressed archives, as they arrive and up to a [limit](ReadOptions::max_bytes).
//!
//! The format is described in NumPy's documentation, under `numpy.lib.format`.

mod descr;
mod error;
mod header;
mod literal;
pub mod npz;
mod options;
mod payload;

pub use self::error::NpyError;
pub use self::options::ReadOptions;

use self::header::{Header, is_column_major};
use self::payload::{Arrival, count};
use super::replace::replace;
use crate::Tensor;
use crate::error::{Error, Result};
use orlop_core::{Device, MemoryFormat};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Reads a `.npy` file.
///
/// # Errors
///
/// [`NpyError`]; out of memory.
pub fn read(path: impl AsRef<Path>) -> Result<Tensor> {
    read_with(path, &ReadOptions::new())
}

/// [`read`], as the options say.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Tensor> {
    let path = path.as_ref();
    let read = || {
        let mut file = File::open(path).map_err(NpyError::from)?;
        let metadata = file.metadata().map_err(NpyError::from)?;
        if metadata.is_file() {
            return read_known(&mut file, metadata.len(), options);
        }
        // A pipe or the like, whose length nobody knows.
        let tensor = read_from_with(&mut file, options)?;
        check_end(&mut file, &tensor)?;
        Ok(tensor)
    };
    read().map_err(|error| at(path, error))
}

/// Reads a `.npy` file that is in memory.
///
/// ```
/// use orlop_tensor::interchange::npy;
///
/// let mut bytes = b"\x93NUMPY\x01\x00\x39\x00{'descr':'>i2','fortran_order':True,'shape':(2,2)}      \n".to_vec();
/// bytes.extend([0, 1, 0, 2, 0, 3, 0, 4]);
/// let tensor = npy::from_bytes(&bytes)?;
/// assert_eq!(tensor.strides(), &[1, 2]);
/// assert_eq!(tensor.to_vec::<i16>()?, [1, 3, 2, 4]);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
///
/// # Errors
///
/// [`NpyError`]; out of memory.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensor> {
    read_known(&mut &*bytes, count(bytes.len()), &ReadOptions::new())
}

/// Reads one array, and nothing of what comes after: files may hold several, one after the other.
///
/// # Errors
///
/// [`NpyError`], among them [`NpyError::TooLarge`]; out of memory.
pub fn read_from<R: Read + ?Sized>(reader: &mut R) -> Result<Tensor> {
    read_from_with(reader, &ReadOptions::new())
}

/// [`read_from`], as the options say.
///
/// # Errors
///
/// Those of [`read_from`].
pub fn read_from_with<R: Read + ?Sized>(reader: &mut R, options: &ReadOptions) -> Result<Tensor> {
    let header = Header::read(reader)?;
    options.check_bytes(count(header.bytes))?;
    read_elements(reader, header, Arrival::Claimed, options)
}

/// Reads from what has so many bytes.
fn read_known<R: Read + ?Sized>(reader: &mut R, length: u64, options: &ReadOptions) -> Result<Tensor> {
    let header = Header::read(reader)?;
    check_length(&header, length)?;
    let tensor = read_elements(reader, header, Arrival::Certain, options)?;
    check_end(reader, &tensor)?;
    Ok(tensor)
}

/// Checks that a file of so many bytes is as long as its header says.
fn check_length(header: &Header, length: u64) -> Result<(), NpyError> {
    let (expected, actual) = (count(header.bytes), length.saturating_sub(count(header.length)));
    match actual.cmp(&expected) {
        std::cmp::Ordering::Less => Err(NpyError::Truncated { expected, actual }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(NpyError::TrailingBytes { expected }),
    }
}

/// Checks that nothing follows a tensor.
fn check_end<R: Read + ?Sized>(reader: &mut R, tensor: &Tensor) -> Result<(), NpyError> {
    if payload::is_at_end(reader)? {
        return Ok(());
    }
    Err(NpyError::TrailingBytes { expected: count(tensor.nbytes()) })
}

fn read_elements<R: Read + ?Sized>(
    reader: &mut R,
    header: Header,
    arrival: Arrival,
    options: &ReadOptions,
) -> Result<Tensor> {
    let storage = payload::read(reader, header.bytes, arrival, options.kind)?;
    payload::settle(&storage, header.descr)?;
    Tensor::from_storage(storage, header.layout, header.descr.dtype)
}

/// Writes a `.npy` file, in the place of what is there.
///
/// A tensor that lies column-major is written so; any other that is not contiguous is written row-major.
///
/// # Errors
///
/// [`NpyError::NoDescr`], [`NpyError::Io`]; [`Error::Undefined`]; [`Error::Borrowed`] while somebody writes
/// the tensor. The file is then what it was.
pub fn write(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let write = replace(path, |error| NpyError::from(error).into(), |out| write_to(&mut out.file, tensor));
    write.map_err(|error| at(path, error))
}

/// The bytes of a `.npy` file.
///
/// # Errors
///
/// Those of [`write()`].
pub fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, tensor)?;
    Ok(bytes)
}

/// Writes what a `.npy` file holds.
///
/// # Errors
///
/// Those of [`write()`].
pub fn write_to<W: Write + ?Sized>(writer: &mut W, tensor: &Tensor) -> Result<()> {
    tensor.storage()?;
    let dtype = tensor.dtype();
    // First of all, whether it can be: nothing is fetched or copied for nothing.
    descr::Descr::name(dtype)?;
    let host = tensor.to_device(Device::CPU)?;
    let column_major = !host.is_contiguous() && is_column_major(host.layout())?;
    let dense = if column_major { host } else { host.contiguous(MemoryFormat::Contiguous)? };
    let header = Header::write(dtype, dense.sizes(), column_major)?;
    writer.write_all(&header).map_err(NpyError::from)?;
    if dense.is_empty() {
        return Ok(());
    }
    let (storage, layout) = (dense.storage()?.read()?, dense.layout());
    layout.check_within(storage.len(), dtype.size())?;
    let elements = storage.get(layout.byte_range(dtype.size())?).unwrap_or_default();
    Ok(payload::write(writer, elements, dtype)?)
}

/// The same error, with the file it is about.
fn at(path: &Path, error: Error) -> Error {
    match error {
        Error::Npy(NpyError::Stream { source }) => NpyError::Io { path: path.into(), source }.into(),
        error => error,
    }
}
