//! The file format of archives.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | version |
//! | 4 | CRC-32 of the header |
//! | 8 | length of the header |
//! | … | the header, as JSON: [`ArchiveHeader`] |
//! | … | the storages, each at a multiple of [`ALIGN`] |
//! | 4 each | CRC-32 of each storage, at a multiple of [`ALIGN`] |
//!
//! Numbers are little-endian; padding is zero. The checksums of storages come last, so an archive is written
//! in one pass that reads every byte once. The header determines the position of everything and the length of
//! the file, and any other file is an error.

use super::ArchiveError;
use orlop_core::{DType, Device, MemoryKind, bytes};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// The magic bytes: no text begins with them, and a transfer in text mode changes them.
pub(super) const MAGIC: [u8; 8] = *b"\x89orlop\r\n";

/// The version that is written, and the latest that can be read.
pub(super) const VERSION: u32 = 1;

/// The alignment of storages in the file, the same as in memory.
pub(super) const ALIGN: usize = 64;

/// The number of bytes before the header.
const PREAMBLE: usize = MAGIC.len() + 4 + 4 + 8;

/// The limit of a header's size: enough for millions of tensors.
const LIMIT: usize = 1 << 28;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchiveHeader {
    byte_order: ByteOrder,
    pub(super) storages: Vec<StorageRecord>,
    pub(super) tensors: Vec<TensorRecord>,
}

/// The byte order of the storages' elements, which are never swapped.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ByteOrder {
    Little,
    Big,
}

const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StorageRecord {
    pub(super) bytes: usize,
    #[serde(with = "text")]
    pub(super) device: Device,
    #[serde(with = "text")]
    pub(super) kind: MemoryKind,
    /// The offset in bytes from the first storage.
    pub(super) offset: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TensorRecord {
    pub(super) name: String,
    /// `None` for an undefined tensor.
    pub(super) view: Option<ViewRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewRecord {
    pub(super) storage: usize,
    /// The range of the storage's bytes that the tensor covers; `None` for all.
    pub(super) part: Option<(usize, usize)>,
    #[serde(with = "text")]
    pub(super) dtype: DType,
    /// Sizes, strides and offset are counted in elements.
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) offset: usize,
}

/// Serializes types of `orlop-core` as the text that they print and parse as.
mod text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;
    use std::fmt::Display;
    use std::str::FromStr;

    pub(super) fn serialize<T: Display, S: Serializer>(word: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(word)
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl ArchiveHeader {
    /// Creates a header for storages that follow each other.
    pub(super) fn new(
        storages: impl IntoIterator<Item = (usize, Device, MemoryKind)>,
        tensors: Vec<TensorRecord>,
    ) -> orlop_core::Result<Self> {
        let mut end = 0;
        let place = |(bytes, device, kind)| {
            let offset = aligned(end)?;
            end = bytes::checked_add(offset, bytes)?;
            Ok(StorageRecord { bytes, device, kind, offset })
        };
        let storages = storages.into_iter().map(place).collect::<orlop_core::Result<_>>()?;
        Ok(Self { byte_order: NATIVE, storages, tensors })
    }

    /// Returns all bytes before the first storage.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        let header = serde_json::to_vec(self).map_err(|source| ArchiveError::Header { source })?;
        let length = u64::try_from(header.len()).unwrap_or(u64::MAX);
        if header.len() > LIMIT {
            return Err(too_long(length));
        }
        let crc = crc32fast::hash(&header).to_le_bytes();
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &crc, &length.to_le_bytes(), &header].concat();
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        Ok(bytes)
    }

    /// Reads everything before the first storage of a file of `file_bytes` bytes, and checks that the header
    /// accounts for all of them.
    pub(super) fn read<R: Read + ?Sized>(reader: &mut R, file_bytes: u64) -> Result<Self, ArchiveError> {
        let mut preamble = Preamble::default();
        preamble.fill(reader)?;
        let truncated = |expected| ArchiveError::Truncated { expected, actual: file_bytes };
        let length = preamble.header_bytes;
        match file_bytes.checked_sub(wide(PREAMBLE)) {
            Some(rest) if length <= rest => {}
            _ => return Err(truncated(length.saturating_add(wide(PREAMBLE)))),
        }
        let bytes = usize::try_from(length).ok().filter(|&bytes| bytes <= LIMIT);
        let mut text = vec![0; bytes.ok_or_else(|| too_long(length))?];
        reader.read_exact(&mut text)?;
        if crc32fast::hash(&text) != preamble.crc {
            return Err(ArchiveError::HeaderChecksum);
        }
        let header: Self = serde_json::from_slice(&text).map_err(|source| ArchiveError::Header { source })?;
        if header.byte_order != NATIVE {
            return Err(ArchiveError::ByteOrder);
        }
        let before = PREAMBLE + text.len();
        let expected = wide(before.next_multiple_of(ALIGN)).saturating_add(header.data_bytes()?);
        match file_bytes.cmp(&expected) {
            std::cmp::Ordering::Less => return Err(truncated(expected)),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return Err(ArchiveError::TrailingBytes { expected }),
        }
        skip(reader, before.next_multiple_of(ALIGN) - before)?;
        Ok(header)
    }

    /// Returns the number of bytes after the header, if the storages follow each other as required.
    fn data_bytes(&self) -> Result<u64, ArchiveError> {
        let mut end = 0;
        for (storage, record) in self.storages.iter().enumerate() {
            let misplaced = ArchiveError::Misplaced { storage, actual: record.offset };
            match (aligned(end), bytes::checked_add(record.offset, record.bytes)) {
                (Ok(offset), Ok(next)) if offset == record.offset => end = next,
                _ => return Err(misplaced),
            }
        }
        let checksums = wide(self.storages.len()).saturating_mul(4);
        Ok(wide(end).next_multiple_of(wide(ALIGN)).saturating_add(checksums))
    }
}

/// The variable fields before the header.
#[derive(Debug, Default)]
struct Preamble {
    crc: u32,
    header_bytes: u64,
}

impl Preamble {
    fn fill<R: Read + ?Sized>(&mut self, reader: &mut R) -> Result<(), ArchiveError> {
        let begins = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::NotAnArchive,
            _ => error.into(),
        };
        let (mut magic, mut version, mut crc, mut length) = ([0; MAGIC.len()], [0; 4], [0; 4], [0; 8]);
        reader.read_exact(&mut magic).map_err(begins)?;
        if magic != MAGIC {
            return Err(ArchiveError::NotAnArchive);
        }
        reader.read_exact(&mut version).map_err(begins)?;
        match u32::from_le_bytes(version) {
            VERSION => {}
            found => return Err(ArchiveError::UnknownVersion { found, known: VERSION }),
        }
        reader.read_exact(&mut crc).map_err(begins)?;
        reader.read_exact(&mut length).map_err(begins)?;
        *self = Self { crc: u32::from_le_bytes(crc), header_bytes: u64::from_le_bytes(length) };
        Ok(())
    }
}

fn too_long(bytes: u64) -> ArchiveError {
    ArchiveError::HeaderTooLong { bytes, limit: wide(LIMIT) }
}

/// Returns the offset of a storage whose predecessor ends at `end`.
pub(super) fn aligned(end: usize) -> orlop_core::Result<usize> {
    bytes::round_up(end, ALIGN)
}

/// Skips less than [`ALIGN`] bytes, which must be zero.
pub(super) fn skip<R: Read + ?Sized>(reader: &mut R, bytes: usize) -> Result<(), ArchiveError> {
    let mut padding = [0; ALIGN];
    reader.read_exact(padding.get_mut(..bytes).unwrap_or_default())?;
    if padding == [0; ALIGN] { Ok(()) } else { Err(ArchiveError::Padding) }
}

pub(super) fn wide(bytes: usize) -> u64 {
    // No machine has a wider `usize`.
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![expect(
        clippy::unwrap_used,
        reason = "clippy.toml allows it in test functions, but not in what they call"
    )]

    use super::*;

    fn header(storages: &[usize]) -> ArchiveHeader {
        let storages = storages.iter().map(|&bytes| (bytes, Device::cuda(1), MemoryKind::KvCache));
        ArchiveHeader::new(storages, vec![TensorRecord { name: "nothing".to_owned(), view: None }]).unwrap()
    }

    #[test]
    fn storages_follow_each_other_aligned() {
        let header = header(&[100, 0, 64, 1]);
        let offsets: Vec<_> = header.storages.iter().map(|storage| storage.offset).collect();
        assert_eq!(offsets, [0, 128, 128, 192]);
        assert_eq!(header.data_bytes().unwrap(), 256 + 4 * 4);
        let bytes = header.to_bytes().unwrap();
        assert_eq!(bytes.len() % ALIGN, 0);
        let again = ArchiveHeader::read(&mut &bytes[..], wide(bytes.len()) + 256 + 16).unwrap();
        assert_eq!(
            (again.storages[0].device, again.storages[0].kind),
            (Device::cuda(1), MemoryKind::KvCache)
        );
        assert_eq!(again.tensors[0].name, "nothing");
    }

    #[test]
    fn every_byte_is_accounted_for() {
        let bytes = header(&[100]).to_bytes().unwrap();
        let expected = wide(bytes.len()) + 128 + 4;
        let read = |length| ArchiveHeader::read(&mut &bytes[..], length).err();
        assert!(read(expected).is_none());
        assert!(matches!(read(expected - 1), Some(ArchiveError::Truncated { .. })));
        assert!(matches!(read(expected + 1), Some(ArchiveError::TrailingBytes { .. })));
        assert!(matches!(read(30), Some(ArchiveError::Truncated { .. })));
    }

    #[test]
    fn storages_elsewhere_are_refused() {
        let mut header = header(&[100, 100]);
        for offset in [0, 64, 129, 192, usize::MAX] {
            header.storages[1].offset = offset;
            let Err(ArchiveError::Misplaced { storage: 1, actual }) = header.data_bytes() else { panic!() };
            assert_eq!(actual, offset);
        }
        header.storages[1] =
            StorageRecord { bytes: usize::MAX, device: Device::CPU, kind: MemoryKind::Default, offset: 128 };
        assert!(matches!(header.data_bytes(), Err(ArchiveError::Misplaced { .. })));
    }
}
