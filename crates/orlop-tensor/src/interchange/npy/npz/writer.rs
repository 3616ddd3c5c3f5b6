//! Writing arrays to an archive.

use super::super::payload::count;
use super::super::{NpyError, at, write_to as write_array};
use super::{SUFFIX, zip_error};
use crate::Tensor;
use crate::error::{Error, Result};
use orlop_host::files::{Output, replace};
use std::borrow::Borrow;
use std::collections::HashSet;
use std::io::{Seek, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The compression of arrays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression, as `numpy.savez`.
    #[default]
    None,
    /// Deflate, as `numpy.savez_compressed`.
    Deflate,
}

/// The size from which an entry uses the zip64 form: below the limit of the plain form, because
/// incompressible data grows a little.
const LARGE: u64 = 0xF000_0000;

/// The longest name that an archive allows, in bytes.
const MAX_NAME: usize = 0xFFFF;

/// Writes a `.npz` file and replaces an existing one atomically, as
/// [`npy::write`](crate::interchange::npy::write) does. The same tensors give the same bytes.
///
/// # Errors
///
/// [`NpyError::Entry`], [`NpyError::DuplicateName`], [`NpyError::NameTooLong`], [`NpyError::Io`]; those of
/// [`npy::write`](crate::interchange::npy::write). The file is then unchanged.
pub fn write<N: AsRef<str>, T: Borrow<Tensor>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
    compression: Compression,
) -> Result<()> {
    let path = path.as_ref();
    let write = |out: &mut Output<'_>| match out.is_seekable {
        true => write_to(&mut out.file, tensors, compression),
        false => write_archive(ZipWriter::new_stream(&mut out.file), tensors, compression),
    };
    let write = replace(path, |error| NpyError::from(error).into(), write);
    write.map_err(|error| at(path, error))
}

/// Writes a `.npz` file to a writer.
///
/// # Errors
///
/// Those of [`write()`].
pub fn write_to<W: Write + Seek, N: AsRef<str>, T: Borrow<Tensor>>(
    writer: W,
    tensors: impl IntoIterator<Item = (N, T)>,
    compression: Compression,
) -> Result<()> {
    write_archive(ZipWriter::new(writer), tensors, compression)
}

fn write_archive<W: Write + Seek, N: AsRef<str>, T: Borrow<Tensor>>(
    mut archive: ZipWriter<W>,
    tensors: impl IntoIterator<Item = (N, T)>,
    compression: Compression,
) -> Result<()> {
    let method = match compression {
        Compression::None => CompressionMethod::Stored,
        Compression::Deflate => CompressionMethod::Deflated,
    };
    // The current date would make each file different.
    let options = SimpleFileOptions::DEFAULT.compression_method(method);
    let mut names = HashSet::new();
    for (name, tensor) in tensors {
        let (name, tensor) = (name.as_ref(), tensor.borrow());
        if !names.insert(Box::<str>::from(name)) {
            return Err(NpyError::DuplicateName { name: name.into() }.into());
        }
        let entry = format!("{name}{SUFFIX}");
        if entry.len() > MAX_NAME {
            return Err(NpyError::NameTooLong { bytes: entry.len(), limit: MAX_NAME }.into());
        }
        let is_large = count(tensor.nbytes()) >= LARGE;
        archive.start_file(entry, options.large_file(is_large)).map_err(zip_error)?;
        write_array(&mut archive, tensor).map_err(|error| match error {
            Error::Npy(NpyError::Stream { source }) => NpyError::Stream { source }.into(),
            error => super::reader::in_entry(name, error),
        })?;
    }
    archive.finish().map_err(zip_error)?.flush().map_err(NpyError::from)?;
    Ok(())
}
