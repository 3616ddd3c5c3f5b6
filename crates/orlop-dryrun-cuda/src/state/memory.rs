//! [`DeviceMemory`]: which addresses are whose, and how much of each device is used.

use super::space::AddressSpace;
use crate::code::{Failure, Outcome};
use std::collections::BTreeMap;

/// The driver gives whole pages to requests from this size on.
const LARGE: u64 = 1 << 20;
const PAGE: u64 = 2 << 20;
const SMALL: u64 = 512;

#[derive(Debug, Clone, Copy)]
struct Allocation {
    bytes: usize,
    device: usize,
    charged: u64,
}

/// Physical memory for virtual memory management.
#[derive(Debug, Clone, Copy)]
struct Physical {
    bytes: usize,
    device: usize,
    /// How often the handle is held: by its creation, and each time that it was retained.
    holders: usize,
    mappings: usize,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    bytes: usize,
    physical: usize,
}

/// The memory of all devices.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    space: AddressSpace,
    /// Bytes that a program can use of each device.
    capacity: u64,
    used: Vec<u64>,
    allocations: BTreeMap<usize, Allocation>,
    physical: BTreeMap<usize, Physical>,
    mappings: BTreeMap<usize, Mapping>,
    reservations: BTreeMap<usize, usize>,
}

impl DeviceMemory {
    pub(crate) fn new(capacity: u64, devices: u32) -> Self {
        Self {
            space: AddressSpace::new(),
            capacity,
            used: vec![0; devices.max(1) as usize],
            allocations: BTreeMap::new(),
            physical: BTreeMap::new(),
            mappings: BTreeMap::new(),
            reservations: BTreeMap::new(),
        }
    }

    pub(crate) fn devices(&self) -> usize {
        self.used.len()
    }

    /// Returns the free bytes of a device.
    pub(crate) fn free_bytes(&self, device: usize) -> u64 {
        self.capacity.saturating_sub(self.used[device])
    }

    /// Returns `true` if a device has allocated memory.
    pub(crate) fn is_used(&self, device: usize) -> bool {
        self.used[device] > 0
    }

    /// Returns `true` for an address of a device.
    pub(crate) fn is_device(&self, address: usize) -> bool {
        self.space.contains(address)
    }

    /// Returns the device of an address, and its range in memory.
    pub(crate) fn locate(&self, address: usize) -> Option<(usize, usize, usize)> {
        let inside = |start: usize, bytes: usize| address - start < bytes;
        let allocation = self.allocations.range(..=address).next_back();
        if let Some((&start, found)) = allocation.filter(|(start, found)| inside(**start, found.bytes)) {
            return Some((found.device, start, found.bytes));
        }
        let (&start, found) = self.mappings.range(..=address).next_back()?;
        let physical = self.physical.get(&found.physical)?;
        inside(start, found.bytes).then_some((physical.device, start, found.bytes))
    }

    fn charge(&mut self, device: usize, bytes: u64) -> Outcome {
        if self.free_bytes(device) < bytes {
            return Err(Failure::OUT_OF_MEMORY);
        }
        self.used[device] += bytes;
        Ok(())
    }

    pub(crate) fn allocate(&mut self, device: usize, bytes: usize) -> Outcome<usize> {
        let charged = charge_of(bytes)?;
        self.charge(device, charged)?;
        let Some(address) = self.space.take(bytes) else {
            self.used[device] -= charged;
            return Err(Failure::OUT_OF_MEMORY);
        };
        self.allocations.insert(address, Allocation { bytes, device, charged });
        Ok(address)
    }

    /// Frees an allocation and returns its bytes.
    pub(crate) fn free(&mut self, address: usize) -> Outcome<usize> {
        let found = self.allocations.remove(&address).ok_or(Failure::INVALID_VALUE)?;
        self.used[found.device] -= found.charged;
        self.space.put(address);
        Ok(found.bytes)
    }

    pub(crate) fn reserve(&mut self, bytes: usize) -> Outcome<usize> {
        let address = self.space.reserve(bytes).ok_or(Failure::OUT_OF_MEMORY)?;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn unreserve(&mut self, address: usize, bytes: usize) -> Outcome {
        let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
        let is_mapped = self.mappings.range(address..end).next().is_some();
        if self.reservations.get(&address) != Some(&bytes) || is_mapped {
            return Err(Failure::INVALID_VALUE);
        }
        self.reservations.remove(&address);
        self.space.unreserve(address, bytes);
        Ok(())
    }

    /// Creates physical memory under a handle.
    pub(crate) fn create(&mut self, handle: usize, device: usize, bytes: usize) -> Outcome {
        self.charge(device, bytes as u64)?;
        self.physical.insert(handle, Physical { bytes, device, holders: 1, mappings: 0 });
        Ok(())
    }

    /// Gives a handle up. The memory is free when nothing maps it either.
    pub(crate) fn release(&mut self, handle: usize) -> Outcome {
        let found = self.physical.get_mut(&handle).filter(|found| found.holders > 0);
        found.ok_or(Failure::INVALID_VALUE)?.holders -= 1;
        self.drop_unused(handle);
        Ok(())
    }

    pub(crate) fn map(&mut self, address: usize, bytes: usize, handle: usize) -> Outcome {
        let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
        let before = self.mappings.range(..end).next_back();
        let overlaps = before.is_some_and(|(start, found)| start + found.bytes > address);
        let reservation = self.reservations.range(..=address).next_back();
        let is_reserved = reservation.is_some_and(|(start, reserved)| start + reserved >= end);
        let physical = self.physical.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?;
        if overlaps || !is_reserved || bytes > physical.bytes {
            return Err(Failure::INVALID_VALUE);
        }
        physical.mappings += 1;
        self.mappings.insert(address, Mapping { bytes, physical: handle });
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: usize, bytes: usize) -> Outcome {
        let end = address.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
        let found: Vec<(usize, Mapping)> =
            self.mappings.range(address..end).map(|(&at, &it)| (at, it)).collect();
        if found.is_empty() || found.iter().any(|(start, mapping)| start + mapping.bytes > end) {
            return Err(Failure::INVALID_VALUE);
        }
        for (start, mapping) in found {
            self.mappings.remove(&start);
            if let Some(physical) = self.physical.get_mut(&mapping.physical) {
                physical.mappings -= 1;
            }
            self.drop_unused(mapping.physical);
        }
        Ok(())
    }

    /// Retains the handle of the memory that is mapped at an address.
    pub(crate) fn retain(&mut self, address: usize) -> Outcome<usize> {
        let found = self.mappings.range(..=address).next_back();
        let (start, mapping) = found.ok_or(Failure::INVALID_VALUE)?;
        if address - start >= mapping.bytes {
            return Err(Failure::INVALID_VALUE);
        }
        let handle = mapping.physical;
        self.physical.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?.holders += 1;
        Ok(handle)
    }

    fn drop_unused(&mut self, handle: usize) {
        if let Some(found) = self.physical.get(&handle).copied()
            && found.holders == 0
            && found.mappings == 0
        {
            self.physical.remove(&handle);
            self.used[found.device] -= found.bytes as u64;
        }
    }
}

/// Returns the bytes that a request takes of a device.
fn charge_of(bytes: usize) -> Outcome<u64> {
    let unit = if bytes as u64 >= LARGE { PAGE } else { SMALL };
    (bytes as u64).checked_next_multiple_of(unit).ok_or(Failure::OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_refuses_and_a_free_one_serves() {
        let mut memory = DeviceMemory::new(10 << 20, 2);
        let first = memory.allocate(0, 7 << 20).unwrap();
        // 7 MiB take four pages.
        assert_eq!(memory.free_bytes(0), 2 << 20);
        assert_eq!(memory.allocate(0, 3 << 20), Err(Failure::OUT_OF_MEMORY));
        assert!(memory.allocate(1, 3 << 20).is_ok());
        assert_eq!(memory.locate(first + 5), Some((0, first, 7 << 20)));
        assert_eq!(memory.free(first), Ok(7 << 20));
        assert_eq!(memory.free(first), Err(Failure::INVALID_VALUE));
        assert_eq!((memory.free_bytes(0), memory.locate(first)), (10 << 20, None));
    }

    #[test]
    fn physical_memory_is_free_when_neither_held_nor_mapped() {
        let mut memory = DeviceMemory::new(10 << 20, 1);
        let at = memory.reserve(1 << 30).unwrap();
        memory.create(1, 0, 4 << 20).unwrap();
        assert_eq!(memory.create(2, 0, 8 << 20), Err(Failure::OUT_OF_MEMORY));
        memory.map(at, 4 << 20, 1).unwrap();
        assert_eq!(memory.map(at + (2 << 20), 4 << 20, 1), Err(Failure::INVALID_VALUE));
        assert_eq!(memory.retain(at + 5), Ok(1));
        memory.release(1).unwrap();
        memory.release(1).unwrap();
        assert_eq!(memory.release(1), Err(Failure::INVALID_VALUE));
        assert_eq!(memory.free_bytes(0), 6 << 20);
        assert_eq!(memory.unreserve(at, 1 << 30), Err(Failure::INVALID_VALUE));
        memory.unmap(at, 4 << 20).unwrap();
        assert_eq!(memory.free_bytes(0), 10 << 20);
        assert_eq!(memory.unreserve(at, 1 << 30), Ok(()));
    }
}
