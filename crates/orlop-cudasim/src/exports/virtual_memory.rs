//! Virtual memory management.

use crate::abi::{
    AccessDescription, AllocationProperties, In, IpcHandle, LOCATION_DEVICE, MemoryLocation, Out,
};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::memory::{ExportedMemory, HandleMark};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR` and `_FABRIC`.
const FILE_DESCRIPTOR: i32 = 1;
const FABRIC: i32 = 8;
/// Where `gpuDirectRDMACapable` is in the flags of an allocation's properties.
const RDMA: usize = 1;

/// Returns the device of an allocation's properties.
fn device_of(driver: &DriverGuard, properties: &AllocationProperties) -> Outcome<usize> {
    // `CU_MEM_ALLOCATION_TYPE_PINNED`.
    if properties.kind != 1 || properties.location.kind != LOCATION_DEVICE {
        return Err(Failure::INVALID_VALUE);
    }
    if properties.handle_types & !driver.config.page_handle_types != 0 {
        return Err(Failure::NOT_SUPPORTED);
    }
    driver.device(properties.location.id)
}

calls! {
    fn cuMemGetAllocationGranularity(
        bytes: Out<usize>,
        properties: In<AllocationProperties>,
        option: i32,
    ) Init |driver| {
        device_of(driver, &properties.get()?)?;
        // `CU_MEM_ALLOC_GRANULARITY_MINIMUM` or `_RECOMMENDED`.
        if option != 0 && option != 1 {
            return Err(Failure::INVALID_VALUE);
        }
        bytes.set(driver.config.granularity)
    }

    fn cuMemAddressReserve(
        address: Out<usize>,
        bytes: usize,
        alignment: usize,
        _wanted: usize,
        flags: u64,
    ) Init |driver| {
        if flags != 0 || address.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        address.set(driver.reserve_addresses(bytes, alignment)?)
    }

    fn cuMemAddressFree(address: usize, bytes: usize) Init |driver| { driver.free_addresses(address, bytes) }

    fn cuMemCreate(
        handle: Out<u64>,
        bytes: usize,
        properties: In<AllocationProperties>,
        flags: u64,
    ) Init |driver| {
        if flags != 0 || handle.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let properties = properties.get()?;
        let device = device_of(driver, &properties)?;
        let is_rdma = properties.flags[RDMA] != 0;
        if is_rdma && !driver.config.has_rdma {
            return Err(Failure::INVALID_VALUE);
        }
        handle.set(driver.create_physical(bytes, device, properties.handle_types, is_rdma)?)
    }

    fn cuMemRelease(handle: u64) Init |driver| { driver.release_physical(handle) }

    fn cuMemMap(address: usize, bytes: usize, offset: usize, handle: u64, flags: u64) Init |driver| {
        if flags != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        driver.map_memory(address, bytes, offset, handle)
    }

    fn cuMemUnmap(address: usize, bytes: usize) Init |driver| { driver.unmap_memory(address, bytes) }

    fn cuMemSetAccess(
        address: usize,
        bytes: usize,
        descriptions: In<AccessDescription>,
        count: usize,
    ) Init |driver| {
        let descriptions = descriptions.list(count)?;
        let own = driver.locate(address).ok_or(Failure::INVALID_VALUE)?.device;
        let mut rights = Vec::new();
        for description in &descriptions {
            if description.location.kind != LOCATION_DEVICE {
                return Err(Failure::INVALID_VALUE);
            }
            let device = driver.device(description.location.id)?;
            if device != own && !driver.config.has_peer_access {
                return Err(Failure::INVALID_DEVICE);
            }
            rights.push((device, description.flags));
        }
        if rights.is_empty() {
            return Err(Failure::INVALID_VALUE);
        }
        rights.into_iter().try_for_each(|(device, access)| driver.set_access(address, bytes, device, access))
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<MemoryLocation>, address: usize) Init |driver| {
        let device = driver.device(location.get()?.id)?;
        flags.set(u64::try_from(driver.access_of(address, device)?).unwrap_or(0))
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: usize) Init |driver| {
        handle.set(driver.retain_physical(address)?)
    }

    fn cuMemGetAllocationPropertiesFromHandle(
        properties: Out<AllocationProperties>,
        handle: u64,
    ) Init |driver| {
        let found = driver.physical(handle)?;
        let id = i32::try_from(found.device).unwrap_or(i32::MAX);
        let location = MemoryLocation { kind: LOCATION_DEVICE, id };
        let (handle_types, mut flags) = (found.handle_types, [0; 8]);
        flags[RDMA] = u8::from(found.is_rdma);
        properties.set(AllocationProperties { kind: 1, handle_types, location, win32: 0, flags })
    }

    fn cuMemExportToShareableHandle(shareable: Out<u8>, handle: u64, kind: i32, flags: u64) Init |driver| {
        if flags != 0 || shareable.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let description = driver.export_physical(handle, kind)?.pack(HandleMark::Pages);
        match kind {
            FILE_DESCRIPTOR => shareable.cast().set(file_of(&description)?),
            FABRIC => shareable.cast().set(description),
            _ => Err(Failure::INVALID_VALUE),
        }
    }

    fn cuMemImportFromShareableHandle(handle: Out<u64>, shareable: usize, kind: i32) Init |driver| {
        if handle.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let description = match kind & driver.config.page_handle_types {
            FILE_DESCRIPTOR => description_in(shareable)?,
            FABRIC => In::from_address(shareable).get()?,
            _ => return Err(Failure::NOT_SUPPORTED),
        };
        let memory = ExportedMemory::unpack(&description, HandleMark::Pages)?;
        handle.set(driver.import_physical(memory)?)
    }
}

/// Creates a file that has a description, and returns its descriptor, which is the caller's.
fn file_of(description: &IpcHandle) -> Outcome<i32> {
    // SAFETY: the name is a terminated string; the call has no other precondition.
    let file = unsafe { libc::memfd_create(c"orlop-cudasim-pages".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(Failure::OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor was just created, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(file) };
    file.write_all(&description.bytes()).map_err(|_| Failure::OPERATING_SYSTEM)?;
    Ok(file.into_raw_fd())
}

/// Reads the description in a file of [`file_of`], whose descriptor stays the caller's.
fn description_in(descriptor: usize) -> Outcome<IpcHandle> {
    let descriptor = i32::try_from(descriptor).map_err(|_| Failure::INVALID_VALUE)?;
    // SAFETY: the caller of `cuMemImportFromShareableHandle` passes an open descriptor, which is not closed
    // here.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let mut bytes = [0; 64];
    let read = file.rewind().and_then(|()| file.read_exact(&mut bytes));
    read.map_err(|_| Failure::INVALID_VALUE)?;
    Ok(IpcHandle::from(bytes))
}
