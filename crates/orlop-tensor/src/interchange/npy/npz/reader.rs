//! Reading arrays from an archive.

use super::super::header::NpyHeader;
use super::super::payload::ByteCountTrust;
use super::super::{NpyError, ReadOptions, at, check_end, check_length, read_elements};
use super::{SUFFIX, zip_error};
use crate::Tensor;
use crate::error::{Error, NoSuchTensor, Result};
use crate::interchange::NamedTensors;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// A `.npz` file whose arrays are read on request.
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
    /// The size of the file.
    bytes: u64,
    path: Option<Box<Path>>,
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

    /// [`NpzReader::open`] with options.
    ///
    /// # Errors
    ///
    /// Those of [`NpzReader::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        let path = path.as_ref();
        let open = || Self::new(BufReader::new(File::open(path).map_err(NpyError::from)?), options);
        let reader = open().map_err(|error| at(path, error))?;
        Ok(Self { path: Some(path.into()), ..reader })
    }
}

impl<R: Read + Seek> NpzReader<R> {
    /// Opens an archive in any seekable reader.
    ///
    /// # Errors
    ///
    /// [`NpyError::Stream`], [`NpyError::Zip`], [`NpyError::TooManyEntries`], [`NpyError::DuplicateName`].
    pub fn new(mut reader: R, options: &ReadOptions) -> Result<Self> {
        let bytes = reader.seek(SeekFrom::End(0)).map_err(NpyError::from)?;
        // The archive's directory is bounded by the length of the file, which is checked before memory is
        // allocated for it.
        let archive = ZipArchive::new(&mut reader).map_err(zip_error)?;
        let (start, entries) = (archive.central_directory_start(), archive.len());
        drop(archive);
        check_names(&mut reader, start, entries)?;
        let archive = ZipArchive::new(reader).map_err(zip_error)?;
        options.check_entries(archive.len())?;
        Ok(Self { archive, bytes, path: None, options: *options })
    }

    /// Returns the names of the arrays, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.file_names().filter_map(|name| name.strip_suffix(SUFFIX))
    }

    /// Reads one array.
    ///
    /// # Errors
    ///
    /// [`NoSuchTensor`](crate::NoSuchTensor), with the nearest name; [`NpyError::Entry`]; out of memory.
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        let index = self.archive.index_for_name(&format!("{name}{SUFFIX}"));
        let index = index.ok_or_else(|| NoSuchTensor::among(self.names(), name, self.path.as_deref()))?;
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
        let mut tensors = NamedTensors::of_file(self.path.as_deref());
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

    /// Checks the total of the sizes that the entries state, before any is read.
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
        // A stored entry has the size that it states, if it fits into the file. All others grow as they are
        // decompressed.
        let is_stored = entry.compression() == CompressionMethod::Stored;
        let arrival = match is_stored && length == entry.compressed_size() && length <= self.bytes {
            true => ByteCountTrust::Verified,
            false => ByteCountTrust::Stated,
        };
        if arrival == ByteCountTrust::Stated {
            self.options.check_bytes(length)?;
        }
        let header = NpyHeader::read(&mut entry)?;
        check_length(&header, length)?;
        let tensor = read_elements(&mut entry, header, arrival, &self.options)?;
        // Reading to the end also checks the checksum.
        check_end(&mut entry, &tensor)?;
        Ok(tensor)
    }
}

/// Fails for archives with a duplicate name, where the archive's reader silently keeps the last entry: the
/// directory, which begins at `start`, then has more entries than the reader.
fn check_names<R: Read + Seek>(reader: &mut R, start: u64, entries: usize) -> Result<(), NpyError> {
    reader.seek(SeekFrom::Start(start))?;
    let mut directory = BufReader::new(reader);
    let (mut count, mut names) = (0_usize, HashSet::new());
    loop {
        let mut fixed = [0; DIRECTORY_ENTRY];
        match directory.read_exact(&mut fixed) {
            Ok(()) if fixed.starts_with(b"PK\x01\x02") => {}
            // The end of the directory, or of the file.
            _ => break,
        }
        let length = |at: usize| u64::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let mut name = Vec::new();
        directory.by_ref().take(length(28)).read_to_end(&mut name)?;
        // The fields after the name.
        io::copy(&mut directory.by_ref().take(length(30) + length(32)), &mut io::sink())?;
        count += 1;
        let text = String::from_utf8_lossy(&name).into_owned();
        if !names.insert(name) {
            return Err(NpyError::DuplicateName { name: text.strip_suffix(SUFFIX).unwrap_or(&text).into() });
        }
        if count > entries {
            // The same name in two encodings.
            return Err(NpyError::DuplicateName { name: text.into() });
        }
    }
    Ok(())
}

/// The bytes of a directory entry before its name.
const DIRECTORY_ENTRY: usize = 46;

/// Adds the name of the array to an error.
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
