//! Calls of the driver, made directly.

use super::Result;
use cudarc::driver::sys::{self, CUresult};
use std::ptr;

pub(super) fn check(result: CUresult) -> Result<()> {
    Ok(result.result()?)
}

/// Sets a place in memory to the first device.
pub(super) fn set_device(location: &mut sys::CUmemLocation) {
    // SAFETY: in every version of CUDA it is two numbers of four bytes, the kind of the place and its id.
    unsafe { (&raw mut *location).cast::<[i32; 2]>().write([1, 0]) }
}

/// A handle of device memory, which is released when it is dropped.
pub(super) struct Handle(pub(super) u64);

impl Handle {
    pub(super) fn create(bytes: usize) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: numbers and a null pointer, of which zeros are values.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        set_device(&mut properties.location);
        // SAFETY: it reads the properties, and writes one handle.
        check(unsafe { sys::cuMemCreate(&raw mut handle, bytes, &raw const properties, 0) })?;
        Ok(Self(handle))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created here, and released once.
        let _ = unsafe { sys::cuMemRelease(self.0) };
    }
}

/// Reserved addresses, which are given back when it is dropped.
pub(super) struct Reservation {
    pub(super) start: u64,
    bytes: usize,
}

impl Reservation {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let mut start = 0;
        // SAFETY: it writes one address.
        check(unsafe { sys::cuMemAddressReserve(&raw mut start, bytes, 0, 0, 0) })?;
        Ok(Self { start, bytes })
    }

    /// Maps handles of `bytes` bytes one behind the other.
    pub(super) fn map(&self, handles: &[Handle], bytes: usize) -> Result<()> {
        for (handle, at) in handles.iter().zip((self.start..).step_by(bytes)) {
            // SAFETY: addresses of this reservation, of which the program uses none.
            check(unsafe { sys::cuMemMap(at, bytes, 0, handle.0, 0) })?;
        }
        Ok(())
    }

    /// Allows the device to use what is mapped, all of it.
    pub(super) fn allow(&self) -> Result<()> {
        // SAFETY: numbers, of which zeros are values.
        let mut access: sys::CUmemAccessDesc = unsafe { std::mem::zeroed() };
        access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        set_device(&mut access.location);
        // SAFETY: it reads one descriptor; all of the reservation is mapped.
        check(unsafe { sys::cuMemSetAccess(self.start, self.bytes, &raw const access, 1) })
    }

    /// Unmaps all in calls of `bytes` bytes.
    pub(super) fn unmap(&self, bytes: usize) -> Result<()> {
        for at in (self.start..self.start + self.bytes as u64).step_by(bytes) {
            // SAFETY: mapped before, and no work uses it.
            check(unsafe { sys::cuMemUnmap(at, bytes) })?;
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: reserved here, and freed once. With something mapped, the driver refuses.
        let _ = unsafe { sys::cuMemAddressFree(self.start, self.bytes) };
    }
}

/// Memory of `cuMemAlloc`, which is freed when it is dropped.
pub(super) struct Region(pub(super) u64);

impl Region {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: it writes one address.
        check(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
        Ok(Self(address))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated here, and freed once.
        let _ = unsafe { sys::cuMemFree_v2(self.0) };
    }
}

/// An event, which is destroyed when it is dropped.
pub(super) struct Event(pub(super) sys::CUevent);

impl Event {
    /// Creates an event without timing.
    pub(super) fn new() -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: it writes one handle.
        check(unsafe { sys::cuEventCreate(&raw mut event, 2) })?;
        Ok(Self(event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created here, and destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
