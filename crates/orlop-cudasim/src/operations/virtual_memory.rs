//! Virtual memory management: addresses, physical memory, its mappings and their access.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::memory::{ExportedMemory, MemoryAccess};
use crate::state::virtual_memory::{ForeignPages, Mapping, PROT_READ, PROT_READ_WRITE, PhysicalAllocation};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Driver {
    fn needs_vmm(&self) -> Outcome {
        if self.config.has_vmm { Ok(()) } else { Err(Failure::NOT_SUPPORTED) }
    }

    fn is_granular(&self, bytes: usize) -> bool {
        bytes > 0 && bytes.is_multiple_of(self.config.granularity)
    }

    pub(crate) fn reserve_addresses(&mut self, bytes: usize, alignment: usize) -> Outcome<usize> {
        self.needs_vmm()?;
        let is_power = alignment == 0 || alignment.is_power_of_two();
        if !self.is_granular(bytes) || !is_power {
            return Err(Failure::INVALID_VALUE);
        }
        let start = self.memory.reserve(bytes, alignment.max(self.config.granularity))?;
        self.vmm.reservations.insert(start, bytes);
        Ok(start)
    }

    pub(crate) fn free_addresses(&mut self, address: usize, bytes: usize) -> Outcome {
        if self.vmm.reservations.get(&address) != Some(&bytes) {
            return Err(Failure::INVALID_VALUE);
        }
        if self.vmm.mappings.range(address..address + bytes).next().is_some() {
            return Err(Failure::INVALID_VALUE);
        }
        self.vmm.reservations.remove(&address);
        self.memory.unreserve(address..address + bytes);
        Ok(())
    }

    pub(crate) fn create_physical(
        &mut self,
        bytes: usize,
        device: usize,
        handle_types: i32,
        is_rdma: bool,
    ) -> Outcome<u64> {
        self.needs_vmm()?;
        if !self.is_granular(bytes) {
            return Err(Failure::INVALID_VALUE);
        }
        self.charge(device, bytes)?;
        let taken = self.memory.take_physical(bytes, self.config.has_poison);
        let offset = taken.inspect_err(|_| self.uncharge(device, bytes))?;
        let (handle, id) = (self.free_or_new_handle(), self.handle());
        let created = PhysicalAllocation {
            device,
            id,
            bytes,
            offset,
            handle_types,
            is_rdma,
            elsewhere: None,
            handles: 1,
            mappings: 0,
        };
        self.vmm.physical.insert(handle, created);
        self.rdma_pages += u64::from(is_rdma);
        Ok(handle)
    }

    /// Describes physical memory for other processes, if it was created for this type of handle.
    pub(crate) fn export_physical(&mut self, handle: u64, handle_type: i32) -> Outcome<ExportedMemory> {
        let found = self.physical(handle)?;
        // What came from another process is not exported on: its description would name this process.
        if found.handle_types & handle_type == 0 || found.elsewhere.is_some() {
            return Err(Failure::INVALID_VALUE);
        }
        let (offset, bytes, device) = (found.offset, found.bytes, found.device);
        let (process, descriptor) = (std::process::id(), self.memory.arena()?.descriptor());
        Ok(ExportedMemory { process, descriptor, offset, bytes, device })
    }

    /// Returns a handle of exported physical memory. Of this process it is one more handle of the same
    /// memory. Memory of another process is not of this one's account, and gone when that one frees it: a
    /// real driver keeps it.
    pub(crate) fn import_physical(&mut self, memory: ExportedMemory) -> Outcome<u64> {
        self.needs_vmm()?;
        let ExportedMemory { bytes, device, offset, .. } = memory;
        if memory.process == std::process::id() {
            let mut own = self.vmm.physical.iter_mut();
            let same = own.find(|(_, found)| found.offset == offset && found.elsewhere.is_none());
            let (&handle, found) = same.ok_or(Failure::INVALID_VALUE)?;
            found.handles += 1;
            return Ok(handle);
        }
        if device >= self.devices.len() {
            return Err(Failure::INVALID_DEVICE);
        }
        let file = Arc::new(memory.open()?);
        let (handle, id) = (self.free_or_new_handle(), self.handle());
        let place = self.vmm.foreign_place(bytes);
        let elsewhere = Some(ForeignPages { file, offset });
        let imported = PhysicalAllocation {
            device,
            id,
            bytes,
            offset: place,
            handle_types: 0,
            is_rdma: false,
            elsewhere,
            handles: 1,
            mappings: 0,
        };
        self.vmm.physical.insert(handle, imported);
        Ok(handle)
    }

    pub(crate) fn release_physical(&mut self, handle: u64) -> Outcome {
        let found = self.vmm.physical.get_mut(&handle).filter(|found| found.handles > 0);
        found.ok_or(Failure::INVALID_VALUE)?.handles -= 1;
        self.free_unused(handle);
        Ok(())
    }

    pub(crate) fn retain_physical(&mut self, address: usize) -> Outcome<u64> {
        let (_, mapping) = self.vmm.mapping(address).ok_or(Failure::INVALID_VALUE)?;
        let handle = mapping.handle;
        self.vmm.physical.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?.handles += 1;
        Ok(handle)
    }

    /// Returns physical memory that the program has a handle of.
    pub(crate) fn physical(&self, handle: u64) -> Outcome<&PhysicalAllocation> {
        self.vmm.physical.get(&handle).filter(|found| found.handles > 0).ok_or(Failure::INVALID_VALUE)
    }

    fn free_unused(&mut self, handle: u64) {
        let Some(found) = self.vmm.physical.get(&handle) else { return };
        if found.handles == 0 && found.mappings == 0 {
            let (device, bytes, offset) = (found.device, found.bytes, found.offset);
            let is_own = found.elsewhere.is_none();
            self.vmm.physical.remove(&handle);
            self.free_handle(handle);
            self.races.past.forget(offset..offset + bytes);
            if !is_own {
                return;
            }
            self.memory.put_physical(offset, bytes);
            self.uncharge(device, bytes);
        }
    }

    pub(crate) fn map_memory(&mut self, address: usize, bytes: usize, offset: usize, handle: u64) -> Outcome {
        let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
        let granularity = self.config.granularity;
        let reservation = self.vmm.reservations.range(..=address).next_back();
        let is_reserved = reservation.is_some_and(|(start, reserved)| end <= start + reserved);
        let is_aligned = address.is_multiple_of(granularity) && self.is_granular(bytes);
        if !is_reserved || !is_aligned || !offset.is_multiple_of(granularity) {
            return Err(Failure::INVALID_VALUE);
        }
        let before = self.vmm.mappings.range(..end).next_back();
        if before.is_some_and(|(start, found)| start + found.bytes > address) {
            return Err(Failure::INVALID_VALUE);
        }
        let found = self.vmm.physical.get_mut(&handle).filter(|found| found.handles > 0);
        let found = found.ok_or(Failure::INVALID_VALUE)?;
        if offset.checked_add(bytes).is_none_or(|end| end > found.bytes) {
            return Err(Failure::INVALID_VALUE);
        }
        let place = found.offset + offset;
        let arena = self.memory.arena()?;
        let is_mapped = match &found.elsewhere {
            None => arena.map_physical(address, place, bytes),
            Some(pages) => arena.map_foreign_pages(address, &pages.file, pages.offset + offset, bytes),
        };
        if !is_mapped {
            return Err(Failure::OUT_OF_MEMORY);
        }
        found.mappings += 1;
        let (device, id) = (found.device, found.id);
        let mapping = Mapping { bytes, handle, id, place, device, access: BTreeMap::new() };
        self.vmm.mappings.insert(address, mapping);
        Ok(())
    }

    pub(crate) fn set_access(&mut self, address: usize, bytes: usize, device: usize, access: i32) -> Outcome {
        if ![0, PROT_READ, PROT_READ_WRITE].contains(&access) {
            return Err(Failure::INVALID_VALUE);
        }
        let starts = self.vmm.exact(address, bytes)?;
        for start in starts {
            let Some(mapping) = self.vmm.mappings.get_mut(&start) else { continue };
            mapping.access.insert(device, access);
            let (bytes, all) = (mapping.bytes, mapping.access_of(None));
            let protection = match all {
                0 => libc::PROT_NONE,
                PROT_READ => libc::PROT_READ,
                _ => libc::PROT_READ | libc::PROT_WRITE,
            };
            if !self.memory.arena()?.protect(start, bytes, protection) {
                return Err(Failure::OUT_OF_MEMORY);
            }
        }
        Ok(())
    }

    /// Returns the access of a device to an address.
    pub(crate) fn access_of(&self, address: usize, device: usize) -> Outcome<i32> {
        let (_, found) = self.vmm.mapping(address).ok_or(Failure::INVALID_VALUE)?;
        Ok(found.access_of(Some(device)))
    }

    /// Unmaps whole mappings. It does not wait for streams: work on the range that the host does not know to
    /// be done is a race.
    pub(crate) fn unmap_memory(&mut self, address: usize, bytes: usize) -> Outcome {
        let starts = self.vmm.exact(address, bytes)?;
        self.host_access("cuMemUnmap", MemoryAccess::write(address, bytes));
        if !self.memory.arena()?.unmap(address, bytes) {
            return Err(Failure::OUT_OF_MEMORY);
        }
        for start in starts {
            if let Some(mapping) = self.vmm.mappings.remove(&start) {
                if let Some(found) = self.vmm.physical.get_mut(&mapping.handle) {
                    found.mappings -= 1;
                }
                self.free_unused(mapping.handle);
            }
        }
        Ok(())
    }
}
