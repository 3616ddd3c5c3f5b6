//! NumPy's file formats: `.npy`, one array, and [`.npz`](npz), named arrays.
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
//! # Conversions
//!
//! | in the file | the tensor |
//! |---|---|
//! | `bool`, `int8` to `int64`, `uint8` to `uint64` | the dtype of the same name |
//! | `float16`, `float32`, `float64`, `complex64`, `complex128` | the dtype of the same name |
//! | either byte order | this machine's |
//! | `fortran_order` | column-major strides over the same bytes, without a transposition |
//! | bytes of bools other than 0 and 1 | true, as 1 |
//!
//! Tensors are read into memory of the CPU; [`Tensor::to_device`] moves them. Tensors on devices are copied
//! to the host to be written. `bfloat16` and the 8-bit floats have no name in this format and are
//! [errors](NpyError::NoDescr), as are arrays of objects, strings, dates and structures in files: nothing is
//! ever unpickled.
//!
//! The output is byte for byte what NumPy writes for the same array. A file is replaced atomically.
//!
//! # Untrusted files
//!
//! A header that does not match the file is an error: too few or too many bytes, sizes that overflow,
//! missing, unknown or duplicate keys. Memory is allocated for the bytes that the file really has; where
//! their number is unknown, as in streams and compressed archives, the buffer grows as they arrive, up to a
//! [limit](ReadOptions::max_bytes).
//!
//! The format is described in NumPy's documentation, under `numpy.lib.format`.

mod descr;
mod header;
mod literal;
pub mod npz;
mod options;
mod payload;

pub use self::options::ReadOptions;
pub use crate::error::npy::NpyError;

use self::header::{NpyHeader, is_column_major};
use self::payload::{ByteCountTrust, count};
use crate::Tensor;
use crate::error::{Error, Result};
use orlop_core::{Device, MemoryFormat};
use orlop_host::files::replace;
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

/// [`read`] with options.
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
        // A pipe, for example, whose length is unknown.
        let tensor = read_from_with(&mut file, options)?;
        check_end(&mut file, &tensor)?;
        Ok(tensor)
    };
    read().map_err(|error| at(path, error))
}

/// Reads a `.npy` file from memory.
///
/// ```
/// use orlop_tensor::interchange::npy;
///
/// let mut bytes = b"\x93NUMPY\x01\x00\x39\x00".to_vec();
/// bytes.extend(b"{'descr':'>i2','fortran_order':True,'shape':(2,2)}      \n");
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

/// Reads one array, and nothing after it: a stream may hold several, one after the other.
///
/// # Errors
///
/// [`NpyError`], including [`NpyError::TooLarge`]; out of memory.
pub fn read_from<R: Read + ?Sized>(reader: &mut R) -> Result<Tensor> {
    read_from_with(reader, &ReadOptions::new())
}

/// [`read_from`] with options.
///
/// # Errors
///
/// Those of [`read_from`].
pub fn read_from_with<R: Read + ?Sized>(reader: &mut R, options: &ReadOptions) -> Result<Tensor> {
    let header = NpyHeader::read(reader)?;
    options.check_bytes(count(header.bytes))?;
    read_elements(reader, header, ByteCountTrust::Stated, options)
}

/// Reads from a source of `length` bytes.
fn read_known<R: Read + ?Sized>(reader: &mut R, length: u64, options: &ReadOptions) -> Result<Tensor> {
    let header = NpyHeader::read(reader)?;
    check_length(&header, length)?;
    let tensor = read_elements(reader, header, ByteCountTrust::Verified, options)?;
    check_end(reader, &tensor)?;
    Ok(tensor)
}

/// Checks that a file of `length` bytes matches its header.
fn check_length(header: &NpyHeader, length: u64) -> Result<(), NpyError> {
    let (expected, actual) = (count(header.bytes), length.saturating_sub(count(header.length)));
    match actual.cmp(&expected) {
        std::cmp::Ordering::Less => Err(NpyError::Truncated { expected, actual }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(NpyError::TrailingBytes { expected }),
    }
}

/// Checks that nothing follows the elements.
fn check_end<R: Read + ?Sized>(reader: &mut R, tensor: &Tensor) -> Result<(), NpyError> {
    if payload::is_at_end(reader)? {
        return Ok(());
    }
    Err(NpyError::TrailingBytes { expected: count(tensor.nbytes()) })
}

fn read_elements<R: Read + ?Sized>(
    reader: &mut R,
    header: NpyHeader,
    arrival: ByteCountTrust,
    options: &ReadOptions,
) -> Result<Tensor> {
    let storage = payload::read(reader, header.bytes, arrival, options.kind)?;
    payload::settle(&storage, header.descr)?;
    Tensor::from_storage(storage, header.layout, header.descr.dtype)
}

/// Writes a `.npy` file and replaces an existing one atomically.
///
/// A column-major tensor is written in column-major order; any other that is not contiguous is written in
/// row-major order.
///
/// # Errors
///
/// [`NpyError::NoDescr`], [`NpyError::Io`]; [`Error::Undefined`]; [`Error::Borrowed`] if the tensor is being
/// written. The file is then unchanged.
pub fn write(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let write = replace(path, |error| NpyError::from(error).into(), |out| write_to(&mut out.file, tensor));
    write.map_err(|error| at(path, error))
}

/// Returns a `.npy` file as bytes.
///
/// # Errors
///
/// Those of [`write()`].
pub fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, tensor)?;
    Ok(bytes)
}

/// Writes a `.npy` file to a writer.
///
/// # Errors
///
/// Those of [`write()`].
pub fn write_to<W: Write + ?Sized>(writer: &mut W, tensor: &Tensor) -> Result<()> {
    tensor.storage()?;
    let dtype = tensor.dtype();
    // First, so that nothing is copied for an unsupported dtype.
    descr::Descr::name(dtype)?;
    let host = tensor.to_device(Device::CPU)?;
    let column_major = !host.is_contiguous() && is_column_major(host.layout())?;
    let dense = if column_major { host } else { host.contiguous(MemoryFormat::Contiguous)? };
    let header = NpyHeader::write(dtype, dense.sizes(), column_major)?;
    writer.write_all(&header).map_err(NpyError::from)?;
    if dense.is_empty() {
        return Ok(());
    }
    let elements = dense.storage()?.slice(dense.layout().byte_range(dtype.size())?)?;
    Ok(payload::write(writer, &elements.read()?, dtype)?)
}

/// Adds the path of the file to an error.
fn at(path: &Path, error: Error) -> Error {
    match error {
        Error::Npy(NpyError::Stream { source }) => NpyError::Io { path: path.into(), source }.into(),
        error => error,
    }
}
