//! The plan of a file, made before anything is written.
//!
//! The output is byte for byte that of the `safetensors` crate: the widest dtypes come first, so that no
//! padding is needed, then the order is by name; the header is padded with spaces to a multiple of eight.

use super::header::{LENGTH, MAX_HEADER, METADATA};
use super::{Metadata, dtypes};
use crate::Tensor;
use crate::error::Result;
use crate::error::safetensors::SafetensorsError;
use orlop_core::{DType, Device, MemoryFormat, bytes};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use std::collections::BTreeSet;

/// A file to be written.
#[derive(Debug)]
pub(super) struct FilePlan<'a> {
    items: Vec<PlannedTensor<'a>>,
    header: Vec<u8>,
    /// The size of the whole file.
    pub(super) bytes: usize,
}

/// A tensor to be written.
#[derive(Debug)]
pub(super) struct PlannedTensor<'a> {
    pub(super) name: &'a str,
    tensor: &'a Tensor,
    dtype: Dtype,
    pub(super) bytes: usize,
}

impl<'a> PlannedTensor<'a> {
    /// # Errors
    ///
    /// The tensor is undefined, or the format does not have its dtype.
    pub(super) fn new(name: &'a str, tensor: &'a Tensor) -> Result<Self> {
        if name == METADATA {
            return Err(SafetensorsError::ReservedName { name: METADATA }.into());
        }
        let dtype = tensor.imp()?.dtype;
        let bytes = tensor.shape().checked_bytes(dtype.size())?;
        let unknown = || SafetensorsError::NoSuchDType { name: name.into(), dtype };
        Ok(Self { name, tensor, dtype: dtypes::written(dtype).ok_or_else(unknown)?, bytes })
    }

    /// Calls `put` with the elements in row-major order, from any device.
    fn put(&self, put: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let host = self.tensor.to_device(Device::CPU)?;
        let host = host.as_contiguous(MemoryFormat::Contiguous)?;
        if host.dtype() == DType::Bool {
            // Bytes other than 0 become 1: other readers may accept nothing else.
            return put(bytemuck::cast_slice(&host.to_vec::<bool>()?));
        }
        let elements = host.storage()?.slice(host.layout().byte_range(host.itemsize())?)?;
        put(&elements.read()?)
    }
}

/// Checks that names are unique.
pub(super) fn check_names(items: &[PlannedTensor<'_>]) -> Result<()> {
    let mut names = BTreeSet::new();
    match items.iter().find(|item| !names.insert(item.name)) {
        None => Ok(()),
        Some(item) => Err(SafetensorsError::DuplicateName { name: item.name.into() }.into()),
    }
}

impl<'a> FilePlan<'a> {
    /// Creates a plan for tensors with unique names.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::HeaderTooLarge`]; a size that overflows.
    pub(super) fn new(mut items: Vec<PlannedTensor<'a>>, metadata: &Metadata) -> Result<Self> {
        items.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(b.name)));
        let mut data_bytes = 0;
        for item in &items {
            data_bytes = bytes::checked_add(data_bytes, item.bytes)?;
        }
        let described = serde_json::to_vec(&HeaderJson { items: &items, metadata });
        let mut header = described.map_err(|source| SafetensorsError::Json { source })?;
        header.resize(header.len().next_multiple_of(LENGTH), b' ');
        if header.len() > MAX_HEADER {
            return Err(SafetensorsError::HeaderTooLarge { bytes: header.len(), limit: MAX_HEADER }.into());
        }
        let bytes = bytes::checked_add(LENGTH + header.len(), data_bytes)?;
        Ok(Self { items, header, bytes })
    }

    /// Calls `put` with all bytes of the file, in parts. Where needed, one tensor at a time is made
    /// contiguous, or copied from its device.
    pub(super) fn write(&self, mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        // At most `MAX_HEADER`.
        let length = u64::try_from(self.header.len()).unwrap_or_default();
        put(&length.to_le_bytes())?;
        put(&self.header)?;
        self.items.iter().try_for_each(|item| item.put(&mut put))
    }
}

/// The serialized form of the header.
struct HeaderJson<'a> {
    items: &'a [PlannedTensor<'a>],
    metadata: &'a Metadata,
}

impl Serialize for HeaderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, self.metadata)?;
        }
        let mut begin = 0;
        for item in self.items {
            let end = bytes::checked_add(begin, item.bytes).map_err(S::Error::custom)?;
            let info = TensorInfo {
                dtype: item.dtype,
                shape: item.tensor.sizes().to_vec(),
                data_offsets: (begin, end),
            };
            map.serialize_entry(item.name, &info)?;
            begin = end;
        }
        map.end()
    }
}
