//! Pages that processes share: exported as handles, and imported from them.

use super::{DevicePages, MappedPage, PageHandleType, give_access, place, undo};
use crate::device::{DeviceState, DriverScope};
use crate::driver::abi::IpcHandle;
use crate::error::CudaError;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// A handle of a page for other processes.
#[derive(Debug)]
pub(crate) enum PageHandle {
    FileDescriptor(OwnedFd),
    Fabric(IpcHandle),
}

/// The pages that a range of addresses is in.
#[derive(Debug)]
pub(crate) struct MappedPages {
    /// The bytes of the first page before the range.
    pub(crate) offset: usize,
    /// The bytes and the driver's handle of each page.
    pub(crate) pages: Vec<(usize, u64)>,
}

impl DevicePages {
    /// Returns the pages that a range is in. `None` if they are not all in this table.
    pub(crate) fn pages_of(&self, address: usize, bytes: usize) -> Option<MappedPages> {
        let mapped = self.mapped.lock();
        let end = address.checked_add(bytes)?;
        let (&start, _) = mapped.range(..=address).next_back()?;
        let (mut at, mut pages) = (start, Vec::new());
        for (&start, &MappedPage { bytes, handle }) in mapped.range(start..end) {
            if start != at {
                return None;
            }
            pages.push((bytes, handle?));
            at = start + bytes;
        }
        (at >= end).then_some(MappedPages { offset: address - start, pages })
    }

    /// Maps imported pages, one after another, at reserved addresses.
    ///
    /// # Safety
    ///
    /// The addresses are reserved and without pages, and nothing uses them. The pages have these bytes.
    pub(crate) unsafe fn import<'a>(
        &self,
        device: &DeviceState,
        address: usize,
        pages: impl IntoIterator<Item = (usize, &'a PageHandle)>,
    ) -> Result<(), CudaError> {
        let mut mapped = self.mapped.lock();
        let scope = device.enter()?;
        let mut end = address;
        let result = (|| {
            for (bytes, handle) in pages {
                let handle = handle.open(&scope)?;
                // SAFETY: guaranteed by the caller; a new handle.
                unsafe { place(&scope, &mut mapped, end, bytes, handle) }?;
                end += bytes;
            }
            // SAFETY: all of it was mapped above.
            unsafe { give_access(&scope, device, address, end - address) }
        })();
        if result.is_err() {
            // SAFETY: mapped in this call, and used nowhere.
            unsafe { undo(&scope, &mut mapped, address, end - address) };
        }
        result
    }
}

impl PageHandle {
    /// Exports a page of a device.
    pub(crate) fn of(device: &DeviceState, page: u64, kind: PageHandleType) -> Result<Self, CudaError> {
        const CALL: &str = "cuMemExportToShareableHandle";
        let export = device.driver.symbols.cuMemExportToShareableHandle;
        let export = export.ok_or(CudaError::DriverTooOld { symbol: CALL })?;
        let scope = device.enter()?;
        match kind {
            PageHandleType::FileDescriptor => {
                let mut descriptor = -1;
                // SAFETY: for this type it writes one descriptor.
                let code = unsafe { export((&raw mut descriptor).cast(), page, kind.code(), 0) };
                scope.driver().check(CALL, code)?;
                // SAFETY: the driver made it for this call, and nothing else owns it.
                Ok(Self::FileDescriptor(unsafe { OwnedFd::from_raw_fd(descriptor) }))
            }
            PageHandleType::Fabric => {
                let mut handle = IpcHandle([0; 64]);
                // SAFETY: for this type it writes 64 bytes.
                let code = unsafe { export((&raw mut handle).cast(), page, kind.code(), 0) };
                scope.driver().check(CALL, code)?;
                Ok(Self::Fabric(handle))
            }
        }
    }

    /// Returns the driver's handle of the page in this process, which the caller releases.
    fn open(&self, scope: &DriverScope<'_>) -> Result<u64, CudaError> {
        const CALL: &str = "cuMemImportFromShareableHandle";
        let import = scope.driver().symbols.cuMemImportFromShareableHandle;
        let import = import.ok_or(CudaError::DriverTooOld { symbol: CALL })?;
        let mut handle = 0;
        let (shared, kind) = match self {
            Self::FileDescriptor(descriptor) => {
                let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
                (ptr::without_provenance_mut(number), PageHandleType::FileDescriptor)
            }
            Self::Fabric(bytes) => (ptr::from_ref(bytes).cast_mut().cast(), PageHandleType::Fabric),
        };
        // SAFETY: an open descriptor as a number, or 64 bytes that are read; it writes one handle.
        let code = unsafe { import(&raw mut handle, shared, kind.code()) };
        scope.driver().check(CALL, code)?;
        Ok(handle)
    }
}
