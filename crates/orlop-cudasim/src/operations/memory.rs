//! Memory of the driver: what an address belongs to, allocations that are charged to a device.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::memory::{Located, MemoryAccess, Reach, SimMemory, rounded};
use crate::state::virtual_memory::{PROT_READ, PROT_READ_WRITE};
use orlop_race::AccessKind;
use std::iter;
use std::ops::Range;

impl Driver {
    /// Returns what an address belongs to.
    pub(crate) fn locate(&self, address: usize) -> Option<Located> {
        self.memory.around(address).copied().or_else(|| self.vmm.locate(address))
    }

    /// Returns `true` if all bytes are in one allocation, or are mapped and accessible.
    pub(crate) fn is_accessible(&self, address: usize, bytes: usize) -> bool {
        match self.memory.around(address) {
            Some(found) => bytes <= found.bytes - (address - found.start),
            None => self.vmm.has_access(address, bytes, PROT_READ, None),
        }
    }

    /// Returns `true` if an access by a device is to memory that is there and allows it.
    pub(crate) fn allows(&self, device: usize, reach: Reach, access: &MemoryAccess) -> bool {
        let MemoryAccess { address, bytes, kind } = *access;
        let Some(found) = self.memory.around(address) else {
            let access = if kind == AccessKind::Read { PROT_READ } else { PROT_READ_WRITE };
            let is_shared = self.config.shares_access || reach == Reach::PeerCopy;
            let device = (!is_shared).then_some(device);
            return self.vmm.has_access(address, bytes, access, device);
        };
        let is_of_device = found.kind == SimMemory::Device && found.device != device;
        let is_shared = reach != Reach::Processors
            || self.config.shares_access
            || match self.pools.get(&found.pool) {
                Some(pool) => pool.peers.contains(&device),
                None => self.devices[device].peers.contains(&found.device),
            };
        (is_shared || !is_of_device) && self.is_accessible(address, bytes)
    }

    /// Fails unless all bytes are accessible.
    pub(crate) fn check_range(&self, address: usize, bytes: usize) -> Outcome {
        if bytes == 0 || self.is_accessible(address, bytes) { Ok(()) } else { Err(Failure::INVALID_VALUE) }
    }

    /// Returns where bytes are, in the file or in registered memory; empty for memory that is not tracked.
    pub(crate) fn places(&self, address: usize, bytes: usize) -> Vec<Range<usize>> {
        let Some(found) = self.memory.around(address) else { return self.vmm.places(address, bytes) };
        iter::once(self.memory.place(found, address, bytes)).collect()
    }

    /// Allocates device or managed memory and charges the device.
    pub(crate) fn allocate_on_device(
        &mut self,
        bytes: usize,
        kind: SimMemory,
        device: usize,
    ) -> Outcome<usize> {
        if bytes == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let rounded = rounded(bytes)?;
        self.charge(device, rounded)?;
        let poison = self.config.has_poison;
        let allocated = self.memory.allocate(bytes, kind, device, 0, 0, poison);
        if allocated.is_err() {
            self.uncharge(device, rounded);
        }
        allocated
    }

    /// Frees an allocation that no stream uses any more, and uncharges its owner.
    pub(crate) fn release_memory(&mut self, start: usize) -> Outcome {
        let places = self.memory.around(start).map(|found| self.places(start, found.bytes));
        let poison = self.config.has_poison;
        let freed = self.memory.release(start, poison).ok_or(Failure::INVALID_VALUE)?;
        for place in places.into_iter().flatten() {
            self.races.past.forget(place);
        }
        let rounded = rounded(freed.bytes)?;
        match freed.kind {
            SimMemory::Pinned => self.memory.pinned -= freed.bytes as u64,
            SimMemory::Registered | SimMemory::Mapped | SimMemory::Imported => {}
            SimMemory::Device | SimMemory::Managed if freed.pool != 0 => {
                self.return_to_pool(freed.pool, rounded);
            }
            SimMemory::Device | SimMemory::Managed => self.uncharge(freed.device, rounded),
        }
        Ok(())
    }
}
