//! Blocks in pages: exported as one handle for each page, and opened by another process.

use super::{ImportedMemory, OpenImport};
use crate::device::{self, CudaDevice};
use crate::driver::abi::{self, IpcHandle};
use crate::error::CudaError;
use crate::memory::{DevicePages, PageHandle, PageHandleType, PageOptions};
use orlop_alloc::{Block, Deleter, Result};
use std::sync::Arc;

/// A block of pages for other processes: where it is in its pages, and a handle of each page. It does not
/// keep the block.
///
/// File descriptors are sent over a socket ([`ExportedPages::send`], [`ExportedPages::receive`]), fabric
/// handles as bytes by any means ([`ExportedPages::to_bytes`], [`ExportedPages::from_bytes`]).
#[derive(Debug)]
pub struct ExportedPages {
    /// Bytes before the block in its first page, and bytes of the block.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) pages: Vec<ExportedPage>,
}

/// One page: its bytes, and its handle.
#[derive(Debug)]
pub(super) struct ExportedPage {
    pub(super) bytes: u64,
    pub(super) handle: PageHandle,
}

/// The block in its pages, as sizes of this process.
struct Layout {
    offset: usize,
    bytes: usize,
    /// The bytes of all pages.
    total: usize,
}

impl CudaDevice {
    /// Exports a block of pages for other processes, which open it with [`CudaDevice::import_pages`]. The
    /// pages must have been created for it: [`CudaMemory::with_pages`](crate::CudaMemory::with_pages).
    ///
    /// A process that opens the block can access all of its pages.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotOnDevice`]; [`CudaError::Unsupported`] for a block that is empty, or that is not in
    /// pages which were created for handles of this type; failures of the driver.
    pub fn export_pages(
        &self,
        block: &Block,
        handles: PageHandleType,
    ) -> std::result::Result<ExportedPages, CudaError> {
        let address = block.as_ptr().as_ptr().addr();
        if block.device() != self.device() {
            return Err(CudaError::NotOnDevice { device: self.device(), address });
        }
        let unsupported = CudaError::Unsupported {
            device: self.device(),
            what: "exporting what is not in pages for this type of handles: see CudaMemory::with_pages",
        };
        let found = if block.is_empty() { None } else { self.state().pages_of(address, block.len()) };
        let found = found.ok_or(unsupported)?;
        let export = |&(bytes, page): &(usize, u64)| {
            let handle = match PageHandle::of(self.state(), page, handles) {
                Err(CudaError::Failed(failure))
                    if matches!(failure.code, abi::INVALID_VALUE | abi::NOT_SUPPORTED) =>
                {
                    return Err(unsupported);
                }
                handle => handle?,
            };
            Ok(ExportedPage { bytes: bytes as u64, handle })
        };
        let pages = found.pages.iter().map(export).collect::<std::result::Result<_, _>>()?;
        Ok(ExportedPages { offset: found.offset as u64, bytes: block.len() as u64, pages })
    }

    /// Opens a block of pages that another process exported with [`CudaDevice::export_pages`], at addresses
    /// of its own. As one of [`CudaDevice::import_memory`] it is for the default stream, and is closed when
    /// it is dropped, or after a capture, and counted by [`CudaDevice::open_imports`].
    ///
    /// # Errors
    ///
    /// [`CudaError::NotExported`] if the pages cannot hold the block; [`CudaError::Unsupported`]; failures of
    /// the driver.
    ///
    /// # Safety
    ///
    /// 1. `exported` is the result of [`CudaDevice::export_pages`], and the exporting process keeps the block
    ///    until the result is closed: it was dropped, and [`CudaDevice::open_imports`] does not count it. If
    ///    the driver failed to close it, that is when this process has ended.
    /// 2. Nothing accesses the memory at two addresses or in two processes at once if one access writes: each
    ///    process waits for its own work before it tells the other, or records a
    ///    [`ProcessEvent`](crate::ProcessEvent) that the other's stream waits for.
    pub unsafe fn import_pages(&self, exported: &ExportedPages) -> Result<Block> {
        device::run_deferred_frees();
        let state = self.state();
        let pages = DevicePages::new(state, PageOptions::new())?;
        let unsupported = CudaError::Unsupported { device: self.device(), what: "pages" };
        let pages = Arc::new(pages.ok_or(unsupported)?);
        let layout = exported.layout(pages.granularity());
        let Layout { offset, bytes, total } =
            layout.ok_or(CudaError::NotExported { device: self.device() })?;
        state.follow_access(&pages);
        let address = pages.reserve(state, total)?;
        let memory = ImportedMemory::Pages { pages: pages.clone(), address, bytes: total };
        let close = OpenImport::new(self, memory);
        let each = exported.pages.iter().map(|page| {
            // The sizes were converted in `layout`.
            (usize::try_from(page.bytes).unwrap_or(usize::MAX), &page.handle)
        });
        // SAFETY: reserved above, and used nowhere; the bytes are the exported ones (guaranteed by the
        // caller).
        unsafe { pages.import(state, address, each) }?;
        let start = (address + offset) as u64;
        // SAFETY: the driver has mapped it until it is closed, and others are ordered (guaranteed by the
        // caller).
        unsafe { self.foreign_block(start, bytes, Deleter::from_owner(close)) }
    }
}

impl ExportedPages {
    /// Returns the number of pages, and so of handles.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the export as bytes, if it has fabric handles. File descriptors are sent over a socket.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = [self.offset, self.bytes].map(u64::to_le_bytes).concat();
        for page in &self.pages {
            let PageHandle::Fabric(handle) = &page.handle else { return None };
            bytes.extend(page.bytes.to_le_bytes());
            bytes.extend(handle.0);
        }
        Some(bytes)
    }

    /// Reads the result of [`ExportedPages::to_bytes`]. Returns `None` for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (pages, rest) = rest.as_chunks::<{ 8 + 64 }>();
        let page = |page: &[u8; 8 + 64]| {
            let (bytes, handle) = page.split_first_chunk()?;
            let handle = PageHandle::Fabric(IpcHandle(handle.try_into().ok()?));
            Some(ExportedPage { bytes: u64::from_le_bytes(*bytes), handle })
        };
        let pages: Vec<_> = pages.iter().map(page).collect::<Option<_>>()?;
        let [offset, bytes] = [offset, bytes].map(|number| u64::from_le_bytes(*number));
        (rest.is_empty() && !pages.is_empty()).then_some(Self { offset, bytes, pages })
    }

    /// Returns `None` if the pages are not whole, or do not hold the block.
    fn layout(&self, granularity: usize) -> Option<Layout> {
        let mut total = 0_usize;
        for page in &self.pages {
            let bytes = usize::try_from(page.bytes).ok()?;
            if bytes == 0 || !bytes.is_multiple_of(granularity) {
                return None;
            }
            total = total.checked_add(bytes)?;
        }
        let (offset, bytes) = (usize::try_from(self.offset).ok()?, usize::try_from(self.bytes).ok()?);
        let fits = bytes > 0 && offset.checked_add(bytes)? <= total;
        fits.then_some(Layout { offset, bytes, total })
    }
}
