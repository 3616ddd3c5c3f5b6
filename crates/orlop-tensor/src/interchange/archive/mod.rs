//! orlop's file format for tensors. It keeps dtype, sizes, strides, storage offset, device, memory kind, and
//! the sharing of storages.
//!
//! ```
//! use orlop_core::DType;
//! use orlop_tensor::Tensor;
//! use orlop_tensor::interchange::archive;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("model.orlop");
//! let table = Tensor::arange(0.0, 12.0, 1.0, DType::F32)?.view([3, 4])?;
//! let columns = table.slice(1, Some(1), Some(3), 1)?;
//! archive::save(&path, [("table", &table), ("columns", &columns), ("nothing", &Tensor::undefined())])?;
//!
//! let loaded = archive::load(&path)?;
//! let (table, columns) = (loaded.get("table").unwrap(), loaded.get("columns").unwrap());
//! assert_eq!(columns.strides(), &[4, 1]);
//! columns.fill_(0.5)?; // Still a view of the table.
//! assert_eq!(table.select(0, 2)?.to_vec::<f32>()?, [8.0, 0.5, 0.5, 11.0]);
//! assert!(!loaded.get("nothing").unwrap().is_defined());
//! # Ok::<(), orlop_tensor::Error>(())
//! ```
//!
//! # What is kept
//!
//! - A storage is written once and completely, however little of it the tensors cover; tensors that share it
//!   share it again after loading. For [parts](crate::Storage::slice) of storages, such as tensors in a pool,
//!   only the parts are written.
//! - Device and memory kind: tensors are loaded to the same device, through the thread's current
//!   [`Context`](orlop_context::Context). The bytes of device memory go through the host.
//!   [`load_with`] selects another device.
//! - Every byte of a storage. The byte order is the machine's; an archive in the other order is an
//!   [error](ArchiveError::ByteOrder).
//!
//! Not kept: which handles were clones of each other, versions, refused accesses and warnings, whether memory
//! was foreign, and lazy copies, which become real ones.
//!
//! No storage can be written while it is saved, so all tensors are saved in one consistent state. A file is
//! replaced atomically.
//!
//! # Untrusted files
//!
//! Sizes, strides, offsets, storages and the length of the file are checked against each other before
//! storages are allocated, and these are never larger than the file. Checksums detect accidental changes. A
//! loaded tensor is inside its storage, whatever the file contains.

mod format;
mod load;
mod plan;
mod transfer;

pub use crate::error::archive::ArchiveError;

use self::format::{ALIGN, ArchiveHeader, wide};
use self::plan::{ArchivePlan, RunPiece};
use super::NamedTensors;
use crate::Tensor;
use crate::error::{Error, Result};
use orlop_core::Device;
use orlop_host::files::replace;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

/// Writes an archive of these tensors and replaces the file atomically. The same tensors give the same bytes.
///
/// # Errors
///
/// [`ArchiveError::DuplicateName`], [`ArchiveError::View`], [`ArchiveError::Io`]; [`Error::Borrowed`] if a
/// tensor is being written; the errors of devices. The file is then unchanged.
pub fn save<N: AsRef<str>, T: Borrow<Tensor>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()> {
    let path = path.as_ref();
    let saved =
        replace(path, |error| ArchiveError::from(error).into(), |out| save_to(&mut out.file, tensors));
    saved.map_err(|error| at(path, error))
}

/// Returns an archive of these tensors as bytes.
///
/// # Errors
///
/// Those of [`save`].
pub fn to_bytes<N: AsRef<str>, T: Borrow<Tensor>>(
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    save_to(&mut bytes, tensors)?;
    Ok(bytes)
}

/// Writes an archive to a writer.
///
/// # Errors
///
/// Those of [`save`].
pub fn save_to<W: Write + ?Sized, N: AsRef<str>, T: Borrow<Tensor>>(
    writer: &mut W,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()> {
    let tensors: Vec<(N, T)> = tensors.into_iter().collect();
    let tensors: Vec<(&str, &Tensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_ref(), tensor.borrow())).collect();
    let mut names = HashSet::new();
    if let Some((name, _)) = tensors.iter().find(|(name, _)| !names.insert(*name)) {
        return Err(ArchiveError::DuplicateName { name: (*name).into() }.into());
    }
    let mut plan = ArchivePlan::new(&tensors)?;
    let storages = plan.runs.iter().filter_map(|run| {
        let storage = run.storage()?;
        Some((run.bytes(), storage.device(), storage.memory_kind()))
    });
    let header = ArchiveHeader::new(storages, std::mem::take(&mut plan.tensors))?;
    writer.write_all(&header.to_bytes()?).map_err(ArchiveError::from)?;
    let mut checksums = Vec::new();
    for run in &plan.runs {
        let mut crc = crc32fast::Hasher::new();
        for piece in run.pieces() {
            match piece {
                RunPiece::Zeros(count) => {
                    crc.update(ZEROS.get(..count).unwrap_or_default());
                    pad(writer, count)?;
                }
                RunPiece::Of(storage, range) => transfer::write(writer, storage, range, &mut crc)?,
            }
        }
        checksums.extend(crc.finalize().to_le_bytes());
        pad(writer, run.bytes().next_multiple_of(ALIGN) - run.bytes())?;
    }
    writer.write_all(&checksums).map_err(ArchiveError::from)?;
    Ok(())
}

const ZEROS: [u8; ALIGN] = [0; ALIGN];

/// Writes `count` zeros, less than [`ALIGN`].
fn pad<W: Write + ?Sized>(writer: &mut W, count: usize) -> Result<(), ArchiveError> {
    Ok(writer.write_all(ZEROS.get(..count).unwrap_or_default())?)
}

/// Loads an archive: names and tensors, in the order of saving.
///
/// # Errors
///
/// [`ArchiveError`], including [`ArchiveError::NoAllocator`]; out of memory; the errors of devices.
pub fn load(path: impl AsRef<Path>) -> Result<NamedTensors> {
    load_with(path, |saved| saved)
}

/// As [`load`], where `map_device` maps each original device to the device to load to. Memory of a host kind
/// that moves to another device gets the default kind.
///
/// # Errors
///
/// Those of [`load`].
pub fn load_with(path: impl AsRef<Path>, map_device: impl Fn(Device) -> Device) -> Result<NamedTensors> {
    let path = path.as_ref();
    let load = || {
        let file = File::open(path).map_err(ArchiveError::from)?;
        let bytes = file.metadata().map_err(ArchiveError::from)?.len();
        load::load(&mut BufReader::new(file), bytes, &map_device, Some(path))
    };
    load().map_err(|error| at(path, error))
}

/// Loads an archive from memory.
///
/// # Errors
///
/// Those of [`load`].
pub fn from_bytes(bytes: &[u8]) -> Result<NamedTensors> {
    from_bytes_with(bytes, |saved| saved)
}

/// As [`from_bytes`], to other devices: see [`load_with`].
///
/// ```
/// use orlop_core::Device;
/// use orlop_tensor::interchange::archive;
/// # use orlop_tensor::Tensor;
/// # let bytes = archive::to_bytes([("a", Tensor::from_slice(&[1u8])?)])?;
///
/// let on_host = archive::from_bytes_with(&bytes, |_| Device::CPU)?;
/// assert_eq!(on_host.len(), 1);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`load`].
pub fn from_bytes_with(bytes: &[u8], map_device: impl Fn(Device) -> Device) -> Result<NamedTensors> {
    load::load(&mut &*bytes, wide(bytes.len()), &map_device, None)
}

/// Adds the path of the file to an error.
fn at(path: &Path, error: Error) -> Error {
    match error {
        Error::Archive(ArchiveError::Stream { source }) => {
            ArchiveError::Io { path: path.into(), source }.into()
        }
        error => error,
    }
}
