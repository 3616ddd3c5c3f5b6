//! The header of a file: its tensors and the positions of their bytes.
//!
//! ```text
//! ┌───────────────┬──────────────────────────────────────┬─────────────────────────────┐
//! │ length: 8     │ JSON: `length` bytes                 │ data: all that follows      │
//! │ little-endian │ {"name": {dtype, shape, offsets}, …} │ the tensors, without gaps   │
//! └───────────────┴──────────────────────────────────────┴─────────────────────────────┘
//! ```
//!
//! Files are untrusted, so a header is fully checked: a tensor's offsets, shape and dtype must agree with
//! each other, with its neighbours and with the length of the file. Allocations before that are proportional
//! to the bytes that exist.
//!
//! The `safetensors` crate has a header parser, with which this one agrees (a test compares them on damaged
//! files). It does not suffice here: of two tensors with one name it keeps the last, its errors name neither
//! the tensor nor the difference, and its sums of offsets near the end of the number range overflow.
//!
//! Source: the format's description at <https://github.com/huggingface/safetensors#format>.

use super::pairs::{Pairs, unique};
use super::{Flaw, Metadata, dtypes};
use orlop_core::{DType, Shape};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// The size limit of a header, the same as in other readers.
pub(super) const MAX_HEADER: usize = 100_000_000;

/// The bytes of the header's length field.
pub(super) const LENGTH: usize = size_of::<u64>();

/// The key of the metadata.
pub(super) const METADATA: &str = "__metadata__";

/// A checked header.
#[derive(Debug)]
pub(super) struct SafetensorsHeader {
    /// In the order of the data, which they cover.
    pub(super) entries: Vec<TensorEntry>,
    pub(super) metadata: Metadata,
}

/// A tensor in a file.
#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// The tensor's bytes after the header: as many as shape and dtype need.
    pub(super) range: Range<usize>,
}

/// Returns the length of the header from the first bytes of a file, which is large enough for it.
pub(super) fn header_bytes(start: &[u8], file_bytes: u64) -> Result<usize, Flaw> {
    let length = start.first_chunk::<LENGTH>().ok_or(Flaw::TooShort { bytes: file_bytes })?;
    let header_bytes = u64::from_le_bytes(*length);
    let fits = usize::try_from(header_bytes).ok().filter(|&bytes| bytes <= MAX_HEADER);
    let bytes = fits.ok_or(Flaw::HeaderTooLarge { bytes: header_bytes, limit: MAX_HEADER })?;
    // The length field takes eight bytes beside the header.
    if file_bytes.saturating_sub(header_bytes) < 8 {
        return Err(Flaw::HeaderTruncated { header_bytes, file_bytes });
    }
    Ok(bytes)
}

impl SafetensorsHeader {
    /// Parses the JSON of a header, for a file with `data_bytes` bytes after it.
    pub(super) fn parse(json: &[u8], data_bytes: usize) -> Result<Self, Flaw> {
        let RawHeader { tensors, metadata } = serde_json::from_slice(json)?;
        if metadata.len() > 1 {
            return Err(Flaw::Duplicate { name: METADATA.into() });
        }
        let metadata = unique(metadata.into_iter().flatten().flat_map(|pairs| pairs.0))?;
        check_names(&tensors)?;
        let mut entries = tensors.into_iter().map(TensorEntry::check).collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
        check_cover(&entries, data_bytes)?;
        Ok(Self { entries, metadata })
    }
}

/// Checks that names are unique.
fn check_names(tensors: &[(String, RawEntry)]) -> Result<(), Flaw> {
    let mut names = BTreeSet::new();
    match tensors.iter().find(|(name, _)| !names.insert(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Flaw::Duplicate { name: name.as_str().into() }),
    }
}

/// Checks that the tensors cover the data without gaps or overlap.
fn check_cover(entries: &[TensorEntry], data_bytes: usize) -> Result<(), Flaw> {
    let mut end = 0;
    let mut previous = "";
    for TensorEntry { name, range, .. } in entries {
        let tensor = || name.as_str().into();
        if range.start < end {
            let (begin, previous) = (range.start, previous.into());
            return Err(Flaw::Overlap { tensor: tensor(), begin, previous, previous_end: end });
        }
        if range.start > end {
            return Err(Flaw::Hole { tensor: tensor(), hole: end, begin: range.start });
        }
        if range.end > data_bytes {
            return Err(Flaw::Truncated { tensor: tensor(), end: range.end, data_bytes });
        }
        (end, previous) = (range.end, name);
    }
    if end == data_bytes { Ok(()) } else { Err(Flaw::Trailing { end, data_bytes }) }
}

impl TensorEntry {
    /// Checks that the tensor's range matches its shape and dtype.
    fn check((name, claim): (String, RawEntry)) -> Result<Self, Flaw> {
        let tensor = || name.as_str().into();
        let Some(dtype) = dtypes::named(&claim.dtype) else {
            return Err(Flaw::DType { tensor: tensor(), dtype: claim.dtype.into() });
        };
        let no_shape = |source| Flaw::Shape { tensor: tensor(), source };
        let shape = Shape::new(&claim.shape).map_err(no_shape)?;
        let expected = shape.checked_bytes(dtype.size()).map_err(no_shape)?;
        let (begin, end) = claim.data_offsets;
        let Some(actual) = end.checked_sub(begin) else {
            return Err(Flaw::Reversed { tensor: tensor(), begin, end });
        };
        if actual != expected {
            return Err(Flaw::Length { tensor: tensor(), expected, actual });
        }
        Ok(Self { name, dtype, shape, range: begin..end })
    }
}

/// The header's description of a tensor, unchecked.
#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The contents of a header, in order and with duplicates.
#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, RawEntry)>,
    metadata: Vec<Option<Pairs<String>>>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with an entry for each tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<RawHeader, A::Error> {
                let mut listed = RawHeader::default();
                while let Some(key) = object.next_key::<String>()? {
                    if key == METADATA {
                        listed.metadata.push(object.next_value()?);
                    } else {
                        listed.tensors.push((key, object.next_value()?));
                    }
                }
                Ok(listed)
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}
