//! The header of a file: which tensors there are, and where their bytes lie.
//!
//! ```text
//! ┌───────────────┬──────────────────────────────────────┬─────────────────────────────┐
//! │ length: 8     │ JSON: `length` bytes                 │ data: all that follows      │
//! │ little-endian │ {"name": {dtype, shape, offsets}, …} │ the tensors, without a hole │
//! └───────────────┴──────────────────────────────────────┴─────────────────────────────┘
//! ```
//!
//! Files come from strangers, so nothing in a header is believed: a tensor is known once its offsets, shape and dtype agree
//! with each other, with its neighbours and with the length of the file. What is allocated until then is in proportion
//! to bytes that are there.
//!
//! The `safetensors` crate has a reader of headers, which this one agrees with (a test compares them on damaged files), but
//! which does not do here: to it the last of two tensors with one name is the only one, it does not say which tensor
//! is wrong nor by how much, and sums of offsets near the end of the number range overflow in it.
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

/// The most bytes that a header may have: what other readers accept.
pub(super) const MAX_HEADER: usize = 100_000_000;

/// Bytes that say how long the header is.
pub(super) const LENGTH: usize = size_of::<u64>();

/// Where the header keeps what is no tensor.
pub(super) const METADATA: &str = "__metadata__";

/// A header that is true.
#[derive(Debug)]
pub(super) struct Header {
    /// In the order of the data, which they cover.
    pub(super) entries: Vec<Entry>,
    pub(super) metadata: Metadata,
}

/// A tensor in a file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Its bytes behind the header: as many as shape and dtype need.
    pub(super) range: Range<usize>,
}

/// How long the header of a file is, from the bytes that it begins with. The file has room for it.
pub(super) fn header_bytes(start: &[u8], file_bytes: u64) -> Result<usize, Flaw> {
    let length = start.first_chunk::<LENGTH>().ok_or(Flaw::TooShort { bytes: file_bytes })?;
    let header_bytes = u64::from_le_bytes(*length);
    let fits = usize::try_from(header_bytes).ok().filter(|&bytes| bytes <= MAX_HEADER);
    let bytes = fits.ok_or(Flaw::HeaderTooLarge { bytes: header_bytes, limit: MAX_HEADER })?;
    // Beside the header there are the eight bytes of its length.
    if file_bytes.saturating_sub(header_bytes) < 8 {
        return Err(Flaw::HeaderTruncated { header_bytes, file_bytes });
    }
    Ok(bytes)
}

impl Header {
    /// From its JSON, for a file with so many bytes behind it.
    pub(super) fn parse(json: &[u8], data_bytes: usize) -> Result<Self, Flaw> {
        let Listed { tensors, metadata } = serde_json::from_slice(json)?;
        if metadata.len() > 1 {
            return Err(Flaw::Duplicate { name: METADATA.into() });
        }
        let metadata = unique(metadata.into_iter().flatten().flat_map(|pairs| pairs.0))?;
        check_names(&tensors)?;
        let mut entries = tensors.into_iter().map(Entry::check).collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
        check_cover(&entries, data_bytes)?;
        Ok(Self { entries, metadata })
    }
}

/// Each name once.
fn check_names(tensors: &[(String, Claim)]) -> Result<(), Flaw> {
    let mut names = BTreeSet::new();
    match tensors.iter().find(|(name, _)| !names.insert(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Flaw::Duplicate { name: name.as_str().into() }),
    }
}

/// From the first byte to the last, each in one tensor.
fn check_cover(entries: &[Entry], data_bytes: usize) -> Result<(), Flaw> {
    let mut end = 0;
    let mut previous = "";
    for Entry { name, range, .. } in entries {
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

impl Entry {
    /// If the tensor agrees with itself.
    fn check((name, claim): (String, Claim)) -> Result<Self, Flaw> {
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

/// What a header says of a tensor.
#[derive(Deserialize)]
struct Claim {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// What a header says, in its order and as often as it does.
#[derive(Default)]
struct Listed {
    tensors: Vec<(String, Claim)>,
    metadata: Vec<Option<Pairs<String>>>,
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Listed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with an entry for each tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Listed, A::Error> {
                let mut listed = Listed::default();
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

        deserializer.deserialize_map(Object)
    }
}
