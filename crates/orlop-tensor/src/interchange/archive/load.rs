//! Loading archives: everything is checked before memory is allocated.

use super::format::{ALIGN, ArchiveHeader, StorageRecord, TensorRecord, ViewRecord, skip};
use super::{ArchiveError, transfer};
use crate::error::{Error, Result};
use crate::interchange::NamedTensors;
use crate::{Storage, Tensor, TensorOptions};
use orlop_core::{Device, Layout, MemoryKind, Shape, Strides};
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// Loads an archive from a reader of `file_bytes` bytes.
pub(super) fn load<R: Read + ?Sized>(
    reader: &mut R,
    file_bytes: u64,
    map_device: &dyn Fn(Device) -> Device,
    path: Option<&Path>,
) -> Result<NamedTensors> {
    let header = ArchiveHeader::read(reader, file_bytes)?;
    let mut names = HashSet::new();
    let mut views = Vec::new();
    for record in &header.tensors {
        if !names.insert(&*record.name) {
            return Err(ArchiveError::DuplicateName { name: record.name.as_str().into() }.into());
        }
        views.push(checked_view(record, &header.storages)?);
    }
    let storages = read_storages(reader, &header.storages, map_device)?;
    let mut tensors = NamedTensors::of_file(path);
    for (TensorRecord { name, view }, layout) in header.tensors.iter().zip(views) {
        let tensor = match (view, layout) {
            (Some(view), Some(layout)) => tensor(name, view, layout, &storages)?,
            _ => Tensor::undefined(),
        };
        if !tensors.insert(name, tensor) {
            return Err(ArchiveError::DuplicateName { name: name.as_str().into() }.into());
        }
    }
    Ok(tensors)
}

/// Returns the checked layout of a tensor inside its storage, or `None` if it is undefined.
fn checked_view(record: &TensorRecord, storages: &[StorageRecord]) -> Result<Option<Layout>> {
    let Some(view) = &record.view else { return Ok(None) };
    let storage = storages.get(view.storage).ok_or_else(|| no_storage(&record.name, view, storages.len()))?;
    let wrong = |source| ArchiveError::View { name: record.name.as_str().into(), source };
    let (start, end) = view.part.unwrap_or((0, storage.bytes));
    if start > end || end > storage.bytes {
        let outside = orlop_core::Error::OutOfStorage { end_bytes: end, storage_bytes: storage.bytes };
        return Err(wrong(outside).into());
    }
    let layout = || {
        let (shape, strides) = (Shape::new(&view.sizes)?, Strides::new(&view.strides)?);
        let layout = Layout::new(shape, strides, view.offset)?;
        layout.check_within(end - start, view.dtype.size())?;
        Ok(layout)
    };
    Ok(Some(layout().map_err(wrong)?))
}

fn no_storage(name: &str, view: &ViewRecord, storages: usize) -> ArchiveError {
    ArchiveError::NoStorage { name: name.into(), storage: view.storage, storages }
}

fn read_storages<R: Read + ?Sized>(
    reader: &mut R,
    records: &[StorageRecord],
    map_device: &dyn Fn(Device) -> Device,
) -> Result<Vec<Storage>> {
    let (mut storages, mut checksums, mut end) = (Vec::new(), Vec::new(), 0);
    for record in records {
        // Less than `ALIGN` bytes, as `ArchiveHeader::read` has checked.
        skip(reader, record.offset.saturating_sub(end))?;
        let storage = allocate(record, map_device)?;
        let mut crc = crc32fast::Hasher::new();
        transfer::read(reader, &storage, &mut crc)?;
        checksums.push(crc.finalize());
        storages.push(storage);
        end = record.offset.saturating_add(record.bytes);
    }
    skip(reader, end.next_multiple_of(ALIGN) - end)?;
    for (storage, checksum) in checksums.into_iter().enumerate() {
        let mut expected = [0; 4];
        reader.read_exact(&mut expected).map_err(ArchiveError::from)?;
        if u32::from_le_bytes(expected) != checksum {
            return Err(ArchiveError::Checksum { storage }.into());
        }
    }
    Ok(storages)
}

/// Allocates a storage of the archive, on the device that its own is mapped to.
fn allocate(record: &StorageRecord, map_device: &dyn Fn(Device) -> Device) -> Result<Storage> {
    let device = map_device(record.device);
    let kind = match record.kind {
        // A host kind that was moved to another device.
        kind if kind.is_host_only() && device != record.device => MemoryKind::Default,
        kind => kind,
    };
    kind.check_on(device)?;
    Storage::new(record.bytes, &TensorOptions::new().device(device).kind(kind)).map_err(|error| match error {
        Error::Alloc(orlop_alloc::Error::NoAllocator { device, kind }) => {
            ArchiveError::NoAllocator { device, kind }.into()
        }
        error => error,
    })
}

fn tensor(name: &str, view: &ViewRecord, layout: Layout, storages: &[Storage]) -> Result<Tensor> {
    let storage = storages.get(view.storage).ok_or_else(|| no_storage(name, view, storages.len()))?;
    let storage = match view.part {
        Some((start, end)) => storage.slice(start..end)?,
        None => storage.clone(),
    };
    Tensor::from_storage(storage, layout, view.dtype)
}
