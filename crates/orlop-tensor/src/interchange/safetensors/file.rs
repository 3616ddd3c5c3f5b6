//! [`SafeTensors`]: an open file of tensors.

use super::Metadata;
use super::header::{self, SafetensorsHeader, TensorEntry};
use crate::error::safetensors::{Flaw, SafetensorsError};
use crate::error::{Error, Result};
use crate::interchange::NamedTensors;
use crate::{Storage, Tensor, TensorOptions};
use orlop_context::Context;
use orlop_core::{Alignment, Device, MemoryKind};
use orlop_host::shield::report;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Deref;
use std::path::Path;

/// The tensors and metadata of a file: it dereferences to the tensors, in alphabetical order.
///
/// ```
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, to_bytes};
///
/// let bias = Tensor::from_slice(&[0.5f32, -0.5])?;
/// let metadata = Metadata::from([("format".to_owned(), "pt".to_owned())]);
/// let file = SafeTensors::from_bytes(&to_bytes([("bias", &bias)], &metadata)?)?;
/// for (name, tensor) in file.iter() {
///     println!("{name}: {} {:?}", tensor.dtype(), tensor.sizes());
/// }
/// assert_eq!((file.len(), file.metadata()), (1, &metadata));
/// assert!(file.tensor("weight").is_err());
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Debug)]
pub struct SafeTensors {
    tensors: NamedTensors,
    metadata: Metadata,
    copied: Vec<Copied>,
    storage: Storage,
}

/// A tensor that was copied because its place in the mapped file is misaligned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The name of the tensor.
    pub name: Box<str>,
    /// The bytes that were copied.
    pub bytes: usize,
    /// The reason for the copy.
    pub why: CopyReason,
}

/// The reason why a tensor of a mapped file was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyReason {
    /// Its position in the file is not aligned for its elements.
    Misaligned {
        /// The position in the file, in bytes. A mapping begins at a page boundary.
        file_offset: usize,
        /// The required alignment.
        needs: Alignment,
    },
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, why: CopyReason::Misaligned { file_offset, needs } } = self;
        let needs = needs.bytes();
        write!(
            f,
            "`{name}` ({bytes} bytes) was copied: its file offset {file_offset} is not a multiple of {needs}"
        )
    }
}

impl SafeTensors {
    /// Maps the tensors of a file without reading or copying it. They share one storage, the file's mapping,
    /// and the system loads each page on its first access.
    ///
    /// The storage is [immutable](crate::Storage::mark_immutable): any number of threads read it without a
    /// common counter, and the file is unmapped with its last handle. [`Tensor::lazy_clone`] makes a copy
    /// that can be written.
    ///
    /// A tensor with misaligned elements is copied, and reported by [`SafeTensors::copied`].
    ///
    /// The current context counts the mapping; [`SafeTensors::map_in`] takes another one.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`]; [`SafetensorsError::Malformed`]; out of memory if a tensor must be copied.
    ///
    /// # Safety
    ///
    /// While any of the tensors, or another handle to their storage, exists:
    ///
    /// 1. the file is not truncated: touching the lost pages ends the process (`SIGBUS`);
    /// 2. nothing writes to the file: references to its contents must not see changes.
    ///
    /// Removing the file, or renaming another to its name as [`save`](super::save) does, is harmless: the old
    /// contents stay until the last mapping is gone. If this cannot be guaranteed, use [`SafeTensors::read`].
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // SAFETY: guaranteed by the caller.
        let storage = unsafe { crate::map::map(path) }.map_err(SafetensorsError::io(path))?;
        Self::in_place(storage, Some(path))
    }

    /// Maps the tensors of a file as [`SafeTensors::map`] does, counted in `context` in place of the current
    /// one: the mapping as mapped memory of kind [`Persistent`](MemoryKind::Persistent), copied
    /// tensors by its allocators.
    ///
    /// # Errors
    ///
    /// Those of [`SafeTensors::map`].
    ///
    /// # Safety
    ///
    /// As for [`SafeTensors::map`].
    pub unsafe fn map_in(context: &Context, path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        context.scope(|| unsafe { Self::map(path) })
    }

    /// Returns the tensors of a file whose bytes are in this storage, without a copy: writes to a tensor
    /// change the storage. Misaligned tensors are copied, as in [`SafeTensors::map`].
    ///
    /// ```
    /// use orlop_tensor::Tensor;
    /// use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, to_bytes};
    ///
    /// let bias = Tensor::from_slice(&[0.5f32, -0.5])?;
    /// let bytes = to_bytes([("bias", &bias)], &Metadata::new())?;
    /// let received = Tensor::from_vec([bytes.len()], bytes)?;
    /// let file = SafeTensors::from_storage(received.storage()?.clone())?;
    /// assert_eq!(file.tensor("bias")?.to_vec::<f32>()?, [0.5, -0.5]);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Malformed`]; those of [`Storage::read`](crate::Storage::read); out of memory if a
    /// tensor must be copied.
    pub fn from_storage(storage: Storage) -> Result<Self> {
        Self::in_place(storage, None)
    }

    /// Creates it from a storage with all bytes of the file.
    fn in_place(storage: Storage, path: Option<&Path>) -> Result<Self> {
        let file = storage.read()?;
        let refuse = |flaw: Flaw| flaw.of(path);
        let file_bytes = u64::try_from(file.len()).unwrap_or(u64::MAX);
        let header_bytes = header::header_bytes(&file, file_bytes).map_err(refuse)?;
        // The length in the header, which was compared with the file's.
        let (_, after) = file.split_at_checked(header::LENGTH).unwrap_or_default();
        let (json, data) = after.split_at_checked(header_bytes).unwrap_or_default();
        let SafetensorsHeader { entries, metadata } =
            SafetensorsHeader::parse(json, data.len()).map_err(refuse)?;
        let start = file.len() - data.len();

        let (mut tensors, mut copied) = (BTreeMap::new(), Vec::new());
        for TensorEntry { name, dtype, shape, range } in entries {
            let file_offset = orlop_core::bytes::checked_add(start, range.start)?;
            let tensor = match Tensor::bind(&storage, file_offset, &shape, dtype) {
                Err(Error::Misaligned { .. }) => {
                    let (bytes, needs) = (range.len(), dtype.alignment());
                    let why = CopyReason::Misaligned { file_offset, needs };
                    copied.push(Copied { name: name.as_str().into(), bytes, why });
                    let alone = Storage::new(bytes, &memory())?;
                    if let Some(data) = data.get(range) {
                        alone.write()?.copy_from_slice(data);
                    }
                    Tensor::bind(&alone, 0, shape, dtype)?
                }
                bound => bound?,
            };
            tensors.insert(name, tensor);
        }
        drop(file);
        if !copied.is_empty() {
            let bytes: usize = copied.iter().map(|copied| copied.bytes).sum();
            let path = path.map(tracing::field::debug);
            report(|| tracing::warn!(path, tensors = copied.len(), bytes, "copied: not aligned in the file"));
        }
        Ok(Self { tensors: NamedTensors::of_map(path, tensors), metadata, copied, storage })
    }

    /// Reads the tensors of a file into one new storage, in which each tensor starts at a cache line.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`]; [`SafetensorsError::Malformed`]; out of memory.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = SafetensorsError::io(path);
        let file = File::open(path).map_err(&io)?;
        let bytes = file.metadata().map_err(&io)?.len();
        let fill = |reader: &mut BufReader<File>, to: &mut [u8]| Ok(reader.read_exact(to).map_err(&io)?);
        Self::load(BufReader::with_capacity(1 << 16, file), fill, bytes, Some(path))
    }

    /// Copies the tensors of a file from memory, as [`SafeTensors::read`] does.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Malformed`]; out of memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let fill = |rest: &mut &[u8], to: &mut [u8]| {
            // `load` requests no more than there is.
            if let Some((next, after)) = rest.split_at_checked(to.len()) {
                to.copy_from_slice(next);
                *rest = after;
            }
            Ok(())
        };
        Self::load(bytes, fill, u64::try_from(bytes.len()).unwrap_or(u64::MAX), None)
    }

    /// Loads from a source of `file_bytes` bytes; `fill` reads the next ones.
    fn load<S>(
        mut source: S,
        fill: impl Fn(&mut S, &mut [u8]) -> Result<()>,
        file_bytes: u64,
        path: Option<&Path>,
    ) -> Result<Self> {
        let refuse = |flaw: Flaw| flaw.of(path);
        let mut length = [0; header::LENGTH];
        // `header_bytes` reports a file that is too short.
        let start = if file_bytes < 8 { &mut [][..] } else { &mut length[..] };
        fill(&mut source, start)?;
        let header_bytes = header::header_bytes(start, file_bytes).map_err(refuse)?;
        let mut json = vec![0; header_bytes];
        fill(&mut source, &mut json)?;
        let too_large = |_| orlop_core::Error::Overflow { quantity: orlop_core::Quantity::ByteSum };
        let file_bytes = usize::try_from(file_bytes).map_err(too_large)?;
        let data_bytes = file_bytes - header::LENGTH - header_bytes;
        let SafetensorsHeader { entries, metadata } =
            SafetensorsHeader::parse(&json, data_bytes).map_err(refuse)?;
        drop(json);

        // Each tensor starts at a cache line, wherever it was in the file.
        let (mut places, mut end) = (Vec::with_capacity(entries.len()), 0);
        for entry in &entries {
            let place = Alignment::CPU.round_up(end)?;
            end = orlop_core::bytes::checked_add(place, entry.range.len())?;
            places.push(place..end);
        }
        let storage = Storage::new(end, &memory())?;
        let mut bytes = storage.write()?;
        for place in &places {
            if let Some(to) = bytes.get_mut(place.clone()) {
                fill(&mut source, to)?;
            }
        }
        drop(bytes);
        let bind = |(entry, place): (TensorEntry, std::ops::Range<usize>)| {
            Ok((entry.name, Tensor::bind(&storage, place.start, entry.shape, entry.dtype)?))
        };
        let tensors = entries.into_iter().zip(places).map(bind).collect::<Result<_>>()?;
        Ok(Self { tensors: NamedTensors::of_map(path, tensors), metadata, copied: Vec::new(), storage })
    }

    /// Returns the file's metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the tensors that had to be copied from the mapped file, in the file's order. Empty if the file
    /// was read.
    #[must_use]
    pub fn copied(&self) -> &[Copied] {
        &self.copied
    }

    /// Returns the storage of all tensors that were not [copied](SafeTensors::copied): the mapping of the
    /// whole file, or the memory that it was read into.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }
}

/// Returns the options for the memory of weights.
fn memory() -> TensorOptions<'static> {
    TensorOptions::new().device(Device::CPU).kind(MemoryKind::Persistent)
}

impl Deref for SafeTensors {
    type Target = NamedTensors;

    fn deref(&self) -> &NamedTensors {
        &self.tensors
    }
}
