//! Device memory in pages, by the driver's virtual memory management.
//!
//! A page is a handle of physical memory (`cuMemCreate`) and the address where it is mapped. The table holds
//! the handle of every mapped page; to move a page is to unmap it and to map its handle elsewhere. Pages of
//! one reservation can have several sizes: large growth takes fewer calls in large pages.
//!
//! # Why no page has two addresses, and none is lost
//!
//! 1. A handle is in the table exactly while it is mapped; it changes its place in the table only after the
//!    driver has unmapped it.
//! 2. A step that fails is undone: pages that were mapped for the call are unmapped and released. If the
//!    driver refuses to undo, the pages stay mapped and in the table, and the error is returned; the engine
//!    does not use the addresses, and a later `unmap` or `map` of them removes the pages first.
//! 3. A page that was unmapped, and that the driver does not map again, is released: its contents are lost,
//!    which a backing whose `remap` fails may do. It then has an entry without a handle, so that `unmap`
//!    counts it as gone.

#[cfg(target_os = "linux")]
mod exported;
mod options;

#[cfg(target_os = "linux")]
pub(crate) use self::exported::{MappedPages, PageHandle};
pub use self::options::{PageHandleType, PageOptions};

use super::to_host_size;
use crate::device::{DeviceState, DriverScope};
use crate::driver::abi::{self, AccessDescriptor};
use crate::driver::call;
use crate::error::CudaError;
use orlop_alloc::engine_support::trace_guarded;
use orlop_sync::Mutex;
use std::collections::BTreeMap;

/// The pages of a device that one backing has mapped.
#[derive(Debug)]
pub(crate) struct DevicePages {
    options: PageOptions,
    granularity: usize,
    mapped: Mutex<BTreeMap<usize, MappedPage>>,
}

/// A page in the table, under its address.
#[derive(Debug, Clone, Copy)]
struct MappedPage {
    bytes: usize,
    /// The driver's handle. `None` if the page was lost in a move that failed.
    handle: Option<u64>,
}

impl DevicePages {
    /// Returns `None` if the device cannot map pages.
    pub(crate) fn new(device: &DeviceState, options: PageOptions) -> Result<Option<Self>, CudaError> {
        if device.attribute(abi::ATTRIBUTE_VIRTUAL_MEMORY)? == 0 {
            return Ok(None);
        }
        let properties = options.properties(device);
        let mut granularity = 0;
        let scope = device.enter()?;
        // SAFETY: it reads the properties, and writes one number. (0: the minimum.)
        unsafe {
            call!(
                scope.driver(),
                cuMemGetAllocationGranularity(&raw mut granularity, &raw const properties, 0)
            )
        }?;
        // A granularity that is no power of two would be a bug of the driver.
        let usable = granularity.is_power_of_two();
        Ok(usable.then(|| Self { options, granularity, mapped: Mutex::default() }))
    }

    /// Allows all devices that were enabled to access the pages that are mapped.
    pub(crate) fn give_access_again(&self, device: &DeviceState) -> Result<(), CudaError> {
        let mapped = self.mapped.lock();
        let scope = device.enter()?;
        for (&address, page) in mapped.iter().filter(|(_, page)| page.handle.is_some()) {
            // SAFETY: all of it is mapped.
            unsafe { give_access(&scope, device, address, page.bytes) }?;
        }
        Ok(())
    }

    pub(crate) fn granularity(&self) -> usize {
        self.granularity
    }

    fn whole(&self, bytes: usize) -> Result<usize, CudaError> {
        bytes.checked_next_multiple_of(self.granularity).ok_or(CudaError::OutOfMemory { call: "rounding" })
    }

    fn check_page(&self, device: &DeviceState, page: usize) -> Result<(), CudaError> {
        if page > 0 && page.is_multiple_of(self.granularity) {
            return Ok(());
        }
        let what = "pages of this size";
        Err(CudaError::Unsupported { device: device.device(), what })
    }

    pub(crate) fn reserve(&self, device: &DeviceState, bytes: usize) -> Result<usize, CudaError> {
        let (bytes, mut address) = (self.whole(bytes)?, 0);
        let scope = device.enter()?;
        // SAFETY: it writes one address.
        unsafe { call!(scope.driver(), cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0)) }?;
        to_host_size(address)
    }

    /// # Safety
    ///
    /// As for `DeviceBacking::release_addresses`.
    pub(crate) unsafe fn release(
        &self,
        device: &DeviceState,
        address: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let bytes = self.whole(bytes)?;
        let mut mapped = self.mapped.lock();
        let scope = device.enter()?;
        // SAFETY: pages that the driver refused to unmap before; the addresses are not in use.
        unsafe { remove(&scope, &mut mapped, address, bytes) }?;
        // SAFETY: a whole reservation, without pages (guaranteed by the caller, and by the line above).
        Ok(unsafe { call!(scope.driver(), cuMemAddressFree(address as u64, bytes)) }?)
    }

    /// # Safety
    ///
    /// As for `DeviceBacking::map`.
    pub(super) unsafe fn map(
        &self,
        device: &DeviceState,
        address: usize,
        bytes: usize,
        page: usize,
    ) -> Result<(), CudaError> {
        self.check_page(device, page)?;
        let properties = self.options.properties(device);
        let mut mapped = self.mapped.lock();
        let scope = device.enter()?;
        // SAFETY: pages that the driver refused to unmap before; the addresses are not in use.
        unsafe { remove(&scope, &mut mapped, address, bytes) }?;
        let result = (|| {
            for at in (address..address + bytes).step_by(page) {
                let mut handle = 0;
                // SAFETY: it reads the properties, and writes one handle.
                unsafe {
                    call!(scope.driver(), cuMemCreate(&raw mut handle, page, &raw const properties, 0))
                }?;
                // SAFETY: reserved addresses without a page (guaranteed by the caller); a new handle.
                unsafe { place(&scope, &mut mapped, at, page, handle) }?;
            }
            // SAFETY: all of it was mapped above.
            unsafe { give_access(&scope, device, address, bytes) }
        })();
        if result.is_err() {
            // SAFETY: mapped in this call, and used nowhere.
            unsafe { undo(&scope, &mut mapped, address, bytes) };
        }
        result
    }

    /// # Safety
    ///
    /// As for `DeviceBacking::unmap`.
    pub(super) unsafe fn unmap(
        &self,
        device: &DeviceState,
        address: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let mut mapped = self.mapped.lock();
        check_whole(device, &mapped, address, bytes)?;
        let scope = device.enter()?;
        // SAFETY: guaranteed by the caller.
        unsafe { remove(&scope, &mut mapped, address, bytes) }
    }

    /// # Safety
    ///
    /// As for `DeviceBacking::remap`.
    pub(super) unsafe fn remap(
        &self,
        device: &DeviceState,
        from: usize,
        to: usize,
        bytes: usize,
        page: usize,
    ) -> Result<(), CudaError> {
        self.check_page(device, page)?;
        let mut mapped = self.mapped.lock();
        check_whole(device, &mapped, from, bytes)?;
        check_whole(device, &mapped, to, bytes)?;
        let scope = device.enter()?;
        // SAFETY: as in `map`.
        unsafe { remove(&scope, &mut mapped, to, bytes) }?;
        let result = (|| {
            let mut offset = 0;
            while offset < bytes {
                let (from, to) = (from + offset, to + offset);
                let Some(&MappedPage { bytes, handle: Some(handle) }) = mapped.get(&from) else {
                    let what = "moving what is not mapped";
                    return Err(CudaError::Unsupported { device: device.device(), what });
                };
                // SAFETY: mapped as a whole; no stream uses it (guaranteed by the caller).
                unsafe { call!(scope.driver(), cuMemUnmap(from as u64, bytes)) }?;
                mapped.insert(from, MappedPage { bytes, handle: None });
                // SAFETY: reserved addresses without a page (guaranteed by the caller); an unmapped handle.
                unsafe { place(&scope, &mut mapped, to, bytes, handle) }?;
                offset += bytes;
            }
            // SAFETY: all of it was mapped above.
            unsafe { give_access(&scope, device, to, bytes) }
        })();
        if result.is_err() {
            // SAFETY: moved in this call, and used nowhere.
            unsafe { undo(&scope, &mut mapped, to, bytes) };
            return result;
        }
        mapped.retain(|at, _| !(from..from + bytes).contains(at));
        Ok(())
    }
}

/// Returns an error if a range begins or ends inside of a page, which would be unmapped with it.
fn check_whole(
    device: &DeviceState,
    mapped: &BTreeMap<usize, MappedPage>,
    address: usize,
    bytes: usize,
) -> Result<(), CudaError> {
    let is_cut = |border: usize| {
        let page = mapped.range(..border).next_back();
        page.is_some_and(|(&at, page)| at + page.bytes > border)
    };
    if is_cut(address) || is_cut(address + bytes) {
        return Err(CudaError::Unsupported { device: device.device(), what: "unmapping a part of a page" });
    }
    Ok(())
}

/// Maps a page and puts it into the table. If that fails, releases it.
///
/// # Safety
///
/// The addresses are reserved and without a page, and the handle is mapped nowhere.
unsafe fn place(
    scope: &DriverScope<'_>,
    mapped: &mut BTreeMap<usize, MappedPage>,
    address: usize,
    bytes: usize,
    handle: u64,
) -> Result<(), CudaError> {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { call!(scope.driver(), cuMemMap(address as u64, bytes, 0, handle, 0)) };
    if let Err(failure) = result {
        // SAFETY: the handle is mapped nowhere, and not used again.
        let released = unsafe { call!(scope.driver(), cuMemRelease(handle)) };
        if let Err(failure) = released {
            trace_guarded(|| tracing::error!(%failure, bytes, "device memory leaked"));
        }
        return Err(failure.into());
    }
    mapped.insert(address, MappedPage { bytes, handle: Some(handle) });
    Ok(())
}

/// Allows the device, and those that were enabled, to access mapped pages.
///
/// # Safety
///
/// All of the range is mapped.
unsafe fn give_access(
    scope: &DriverScope<'_>,
    device: &DeviceState,
    address: usize,
    bytes: usize,
) -> Result<(), CudaError> {
    let access: Vec<_> = device.accessors().into_iter().map(AccessDescriptor::read_write).collect();
    let (list, count) = (access.as_ptr(), access.len());
    // SAFETY: guaranteed by the caller; it reads the descriptors.
    Ok(unsafe { call!(scope.driver(), cuMemSetAccess(address as u64, bytes, list, count)) }?)
}

/// Unmaps the pages in a range, and releases their memory. Stops at the first that the driver does not unmap;
/// [`CudaError::Capturing`] then means that all of them are as they were.
///
/// # Safety
///
/// The range begins and ends between pages, and no stream uses it.
unsafe fn remove(
    scope: &DriverScope<'_>,
    mapped: &mut BTreeMap<usize, MappedPage>,
    address: usize,
    bytes: usize,
) -> Result<(), CudaError> {
    let pages: Vec<_> = mapped.range(address..address + bytes).map(|(&at, &page)| (at, page)).collect();
    let mut is_changed = false;
    for (at, MappedPage { bytes, handle }) in pages {
        if let Some(handle) = handle {
            // SAFETY: a whole page, not in use (guaranteed by the caller).
            let unmapped = unsafe { call!(scope.driver(), cuMemUnmap(at as u64, bytes)) };
            unmapped
                .map_err(|failure| if is_changed { CudaError::Failed(failure) } else { failure.into() })?;
            mapped.remove(&at);
            // SAFETY: mapped nowhere, and not used again.
            unsafe { call!(scope.driver(), cuMemRelease(handle)) }.map_err(CudaError::Failed)?;
        } else {
            mapped.remove(&at);
        }
        is_changed = true;
    }
    Ok(())
}

/// Removes what a call that failed has mapped. What the driver keeps stays in the table.
///
/// # Safety
///
/// As for [`remove`].
unsafe fn undo(
    scope: &DriverScope<'_>,
    mapped: &mut BTreeMap<usize, MappedPage>,
    address: usize,
    bytes: usize,
) {
    // SAFETY: guaranteed by the caller.
    if let Err(error) = unsafe { remove(scope, mapped, address, bytes) } {
        trace_guarded(|| tracing::error!(%error, address, bytes, "pages stay mapped at unused addresses"));
    }
}
