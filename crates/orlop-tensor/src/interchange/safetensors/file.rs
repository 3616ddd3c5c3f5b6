//! A file of tensors, opened.

use super::Metadata;
use super::error::{Flaw, SafetensorsError};
use super::header::{self, Entry, Header};
use crate::error::{Error, Result};
use crate::{Storage, Tensor, TensorOptions};
use orlop_core::{Alignment, Device, MemoryKind};
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The tensors of a file, and what it says beside them.
///
/// ```
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, to_bytes};
///
/// let bias = Tensor::from_slice(&[0.5f32, -0.5])?;
/// let metadata = Metadata::from([("format".to_owned(), "pt".to_owned())]);
/// let file = SafeTensors::from_bytes(&to_bytes([("bias", &bias)], &metadata)?)?;
/// for (name, tensor) in &file {
///     println!("{name}: {} {:?}", tensor.dtype(), tensor.sizes());
/// }
/// assert_eq!((file.len(), file.metadata()), (1, &metadata));
/// assert!(file.tensor("weight").is_err());
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
pub struct SafeTensors {
    tensors: BTreeMap<String, Tensor>,
    metadata: Metadata,
    copied: Vec<Copied>,
    storage: Storage,
}

/// A tensor that has memory of its own, because it could not stay where it was in the mapped file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Which tensor.
    pub name: Box<str>,
    /// Bytes that were copied.
    pub bytes: usize,
    /// Why it could not stay.
    pub why: CopyReason,
}

/// Why a tensor of a mapped file was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyReason {
    /// Its elements need another alignment than its place in the file gives them.
    Misaligned {
        /// Where it begins in the file, in bytes. A mapping begins with a page.
        file_offset: usize,
        /// What that should be a multiple of.
        needs: Alignment,
    },
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, why: CopyReason::Misaligned { file_offset, needs } } = self;
        let needs = needs.bytes();
        write!(
            f,
            "`{name}` ({bytes} bytes) was copied: it begins at byte {file_offset}, no multiple of {needs}"
        )
    }
}

impl SafeTensors {
    /// The tensors of a file where they are, without reading or copying it: all look at one storage, the file's mapping,
    /// and pages come from the file when they are touched first.
    ///
    /// The storage refuses writes. If they are allowed all the same
    /// ([`Storage::allow_access`](crate::Storage::allow_access)) they show in this process only: the mapping is private.
    ///
    /// A tensor whose elements would not be aligned is copied, alone, and reported: [`SafeTensors::copied`].
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Io`]; [`SafetensorsError::Malformed`]; out of memory if something must be copied.
    ///
    /// # Safety
    ///
    /// As long as any of the tensors lives, or any other that shares their storage:
    ///
    /// 1. the file becomes no shorter: touching what is gone ends the process (`SIGBUS`);
    /// 2. nobody writes to the file: references show what it holds, which must not change.
    ///
    /// Removing the file, or renaming another to its name as [`save`](super::save) does, is no harm: the old one lives
    /// until its last mapping is gone. Where nothing of this can be promised, use [`SafeTensors::read`].
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // SAFETY: the caller's promises.
        let storage = unsafe { crate::map::map(path) }.map_err(SafetensorsError::io(path))?;
        Self::in_place(storage, Some(path))
    }

    /// The tensors of a file whose bytes are in memory already, where they are: all look at this storage, and whoever
    /// writes to one writes there. One whose elements would not be aligned is copied, as [`SafeTensors::map`] does it.
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
    /// [`SafetensorsError::Malformed`]; those of [`Storage::read`](crate::Storage::read); out of memory if something must
    /// be copied.
    pub fn from_storage(storage: Storage) -> Result<Self> {
        Self::in_place(storage, None)
    }

    /// From a storage of all bytes of the file.
    fn in_place(storage: Storage, path: Option<&Path>) -> Result<Self> {
        let file = storage.read()?;
        let refuse = |flaw: Flaw| flaw.of(path);
        let file_bytes = u64::try_from(file.len()).unwrap_or(u64::MAX);
        let header_bytes = header::header_bytes(&file, file_bytes).map_err(refuse)?;
        // As long as the length says, which was compared with the file's.
        let (_, after) = file.split_at_checked(header::LENGTH).unwrap_or_default();
        let (json, data) = after.split_at_checked(header_bytes).unwrap_or_default();
        let Header { entries, metadata } = Header::parse(json, data.len()).map_err(refuse)?;
        let start = file.len() - data.len();

        let (mut tensors, mut copied) = (BTreeMap::new(), Vec::new());
        for Entry { name, dtype, shape, range } in entries {
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
            tracing::warn!(path, tensors = copied.len(), bytes, "copied: not aligned in the file");
        }
        Ok(Self { tensors, metadata, copied, storage })
    }

    /// The tensors of a file in memory of their own: one storage, in which each begins with a cache line.
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

    /// The tensors of a file that is in memory, copied: as [`SafeTensors::read`].
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::Malformed`]; out of memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let fill = |rest: &mut &[u8], to: &mut [u8]| {
            // `load` asks for no more than there is.
            if let Some((next, after)) = rest.split_at_checked(to.len()) {
                to.copy_from_slice(next);
                *rest = after;
            }
            Ok(())
        };
        Self::load(bytes, fill, u64::try_from(bytes.len()).unwrap_or(u64::MAX), None)
    }

    /// From a source of `file_bytes`, of which `fill` gives the next.
    fn load<S>(
        mut source: S,
        fill: impl Fn(&mut S, &mut [u8]) -> Result<()>,
        file_bytes: u64,
        path: Option<&Path>,
    ) -> Result<Self> {
        let refuse = |flaw: Flaw| flaw.of(path);
        let mut length = [0; header::LENGTH];
        // What there is not is for `header_bytes` to refuse.
        let start = if file_bytes < 8 { &mut [][..] } else { &mut length[..] };
        fill(&mut source, start)?;
        let header_bytes = header::header_bytes(start, file_bytes).map_err(refuse)?;
        let mut json = vec![0; header_bytes];
        fill(&mut source, &mut json)?;
        let too_large = |_| orlop_core::Error::Overflow { quantity: orlop_core::Quantity::ByteSum };
        let file_bytes = usize::try_from(file_bytes).map_err(too_large)?;
        let data_bytes = file_bytes - header::LENGTH - header_bytes;
        let Header { entries, metadata } = Header::parse(&json, data_bytes).map_err(refuse)?;
        drop(json);

        // Each from the start of a cache line on, wherever it was in the file.
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
        let bind = |(entry, place): (Entry, std::ops::Range<usize>)| {
            Ok((entry.name, Tensor::bind(&storage, place.start, entry.shape, entry.dtype)?))
        };
        let tensors = entries.into_iter().zip(places).map(bind).collect::<Result<_>>()?;
        Ok(Self { tensors, metadata, copied: Vec::new(), storage })
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::NoSuchTensor`].
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let missing = || SafetensorsError::NoSuchTensor { name: name.into() };
        Ok(self.get(name).ok_or_else(missing)?)
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names and tensors, in alphabetical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// How many tensors there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// What the file says beside its tensors.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors that could not stay in the mapped file, in the file's order. None if it was read.
    #[must_use]
    pub fn copied(&self) -> &[Copied] {
        &self.copied
    }

    /// What the tensors look at, but for those that were [copied](SafeTensors::copied): the mapping of the whole file, or
    /// the memory it was read to.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The tensors alone, which keep alive what they look at.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, Tensor> {
        self.tensors
    }
}

/// Where weights are kept.
fn memory() -> TensorOptions<'static> {
    TensorOptions::new().device(Device::CPU).kind(MemoryKind::Persistent)
}

impl fmt::Debug for SafeTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeTensors")
            .field("tensors", &self.len())
            .field("metadata", &self.metadata)
            .field("copied", &self.copied)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a SafeTensors {
    type Item = (&'a String, &'a Tensor);
    type IntoIter = btree_map::Iter<'a, String, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.iter()
    }
}

impl IntoIterator for SafeTensors {
    type Item = (String, Tensor);
    type IntoIter = btree_map::IntoIter<String, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}
