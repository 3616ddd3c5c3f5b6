//! Arrays out of an archive.

use super::super::header::Header;
use super::super::payload::Arrival;
use super::super::{NpyError, ReadOptions, at, check_end, check_length, read_elements};
use super::{SUFFIX, zip_error};
use crate::Tensor;
use crate::error::{Error, Result};
use crate::interchange::NamedTensors;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// A `.npz` file whose arrays are read when they are asked for.
///
/// ```
/// use orlop_core::DType;
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::npy::npz::{self, Compression, NpzReader};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("many.npz");
/// let (a, b) = (Tensor::zeros([2], DType::I64)?, Tensor::ones([3], DType::U8)?);
/// npz::write(&path, [("a", &a), ("b", &b)], Compression::None)?;
/// let mut file = NpzReader::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b"]);
/// assert_eq!(file.read("b")?.to_vec::<u8>()?, [1, 1, 1]);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
pub struct NpzReader<R = BufReader<File>> {
    archive: ZipArchive<R>,
    /// Of the whole file.
    bytes: u64,
    options: ReadOptions,
}

impl NpzReader {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`NpyError::Io`], [`NpyError::Zip`], [`NpyError::TooManyEntries`], [`NpyError::DuplicateName`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &ReadOptions::new())
    }

    /// [`NpzReader::open`], as the options say.
    ///
    /// # Errors
    ///
    /// Those of [`NpzReader::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        let path = path.as_ref();
        let open = || Self::new(BufReader::new(File::open(path).map_err(NpyError::from)?), options);
        open().map_err(|error| at(path, error))
    }
}

impl<R: Read + Seek> NpzReader<R> {
    /// Opens what else holds an archive.
    ///
    /// # Errors
    ///
    /// [`NpyError::Stream`], [`NpyError::Zip`], [`NpyError::TooManyEntries`], [`NpyError::DuplicateName`].
    pub fn new(mut reader: R, options: &ReadOptions) -> Result<Self> {
        let bytes = reader.seek(SeekFrom::End(0)).map_err(NpyError::from)?;
        // The archive's directory is bounded by the length of the file: it is checked before memory is
        // allocated for it.
        let archive = ZipArchive::new(&mut reader).map_err(zip_error)?;
        let (start, entries) = (archive.central_directory_start(), archive.len());
        drop(archive);
        check_names(&mut reader, start, entries)?;
        let archive = ZipArchive::new(reader).map_err(zip_error)?;
        options.check_entries(archive.len())?;
        Ok(Self { archive, bytes, options: *options })
    }

    /// The names of the arrays, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.file_names().filter_map(|name| name.strip_suffix(SUFFIX))
    }

    /// Reads one array.
    ///
    /// # Errors
    ///
    /// [`NpyError::NoEntry`], [`NpyError::Entry`]; out of memory.
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        let index = self.archive.index_for_name(&format!("{name}{SUFFIX}"));
        let index = index.ok_or_else(|| NpyError::NoEntry { name: name.into() })?;
        self.read_entry(index).map_err(|error| in_entry(name, error))
    }

    /// Reads all arrays, in order.
    ///
    /// # Errors
    ///
    /// [`NpyError::NotAnArray`], [`NpyError::Entry`], [`NpyError::OverlappingEntries`],
    /// [`NpyError::TooLarge`]; out of memory.
    pub fn read_all(&mut self) -> Result<NamedTensors> {
        self.check_together()?;
        let mut tensors = NamedTensors::default();
        for index in 0..self.archive.len() {
            let entry = self.archive.name_for_index(index).unwrap_or_default();
            let Some(name) = entry.strip_suffix(SUFFIX).map(String::from) else {
                return Err(NpyError::NotAnArray { name: entry.into() }.into());
            };
            let tensor = self.read_entry(index).map_err(|error| in_entry(&name, error))?;
            if !tensors.insert(&name, tensor) {
                return Err(NpyError::DuplicateName { name: name.into() }.into());
            }
        }
        Ok(tensors)
    }

    /// Checks what the entries claim to have together, before any is read.
    fn check_together(&mut self) -> Result<(), NpyError> {
        let (mut packed, mut unpacked) = (0_u64, 0_u64);
        for index in 0..self.archive.len() {
            let entry = self.archive.by_index_raw(index).map_err(zip_error)?;
            packed = packed.saturating_add(entry.compressed_size());
            if entry.compression() != CompressionMethod::Stored {
                unpacked = unpacked.saturating_add(entry.size());
            }
        }
        if packed > self.bytes {
            return Err(NpyError::OverlappingEntries { bytes: packed, file_bytes: self.bytes });
        }
        self.options.check_bytes(unpacked)
    }

    fn read_entry(&mut self, index: usize) -> Result<Tensor> {
        let mut entry = self.archive.by_index(index).map_err(zip_error)?;
        let length = entry.size();
        // An entry that is not packed is as long as it says, if it fits into the file. All others grow as
        // they are unpacked.
        let is_stored = entry.compression() == CompressionMethod::Stored;
        let arrival = match is_stored && length == entry.compressed_size() && length <= self.bytes {
            true => Arrival::Certain,
            false => Arrival::Claimed,
        };
        if arrival == Arrival::Claimed {
            self.options.check_bytes(length)?;
        }
        let header = Header::read(&mut entry)?;
        check_length(&header, length)?;
        let tensor = read_elements(&mut entry, header, arrival, &self.options)?;
        // The end is also where the checksum is looked at.
        check_end(&mut entry, &tensor)?;
        Ok(tensor)
    }
}

/// Refuses archives that have a name twice: the archive's reader keeps the last entry of a name and says nothing. So there
/// are more entries in the directory, which begins at `start`, than the reader has.
fn check_names<R: Read + Seek>(reader: &mut R, start: u64, entries: usize) -> Result<(), NpyError> {
    reader.seek(SeekFrom::Start(start))?;
    let mut directory = BufReader::new(reader);
    let (mut count, mut names) = (0_usize, HashSet::new());
    loop {
        let mut fixed = [0; DIRECTORY_ENTRY];
        match directory.read_exact(&mut fixed) {
            Ok(()) if fixed.starts_with(b"PK\x01\x02") => {}
            // What ends the directory, and the file.
            _ => break,
        }
        let length = |at: usize| u64::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let mut name = Vec::new();
        directory.by_ref().take(length(28)).read_to_end(&mut name)?;
        // What follows the name.
        io::copy(&mut directory.by_ref().take(length(30) + length(32)), &mut io::sink())?;
        count += 1;
        let text = String::from_utf8_lossy(&name).into_owned();
        if !names.insert(name) {
            return Err(NpyError::DuplicateName { name: text.strip_suffix(SUFFIX).unwrap_or(&text).into() });
        }
        if count > entries {
            // Two encodings of one name.
            return Err(NpyError::DuplicateName { name: text.into() });
        }
    }
    Ok(())
}

/// Bytes of an entry of the directory before its name.
const DIRECTORY_ENTRY: usize = 46;

/// The same error, with the array it is about.
pub(super) fn in_entry(name: &str, error: Error) -> Error {
    match error {
        Error::Npy(source) => NpyError::Entry { name: name.into(), source: Box::new(source) }.into(),
        error => error,
    }
}

impl<R> fmt::Debug for NpzReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NpzReader").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
