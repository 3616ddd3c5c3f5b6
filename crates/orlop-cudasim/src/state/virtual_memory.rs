//! [`VirtualMemory`]: reservations, physical memory, and its mappings.

use crate::codes::{Failure, Outcome};
use crate::memory::{Located, SimMemory};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `CU_MEM_ACCESS_FLAGS_PROT_*`.
pub(crate) const PROT_READ: i32 = 1;
pub(crate) const PROT_READ_WRITE: i32 = 3;

/// Physical memory of a device.
#[derive(Debug)]
pub(crate) struct PhysicalAllocation {
    pub(crate) device: usize,
    /// No other memory has had it, as others may have had its handle.
    pub(crate) id: u64,
    pub(crate) bytes: usize,
    /// Where it is in the file. For memory of another process a place that nothing in the file has.
    pub(crate) offset: usize,
    /// The `CU_MEM_HANDLE_TYPE_*` bits of the exports that it was created for.
    pub(crate) handle_types: i32,
    /// Other hardware can access it.
    pub(crate) is_rdma: bool,
    /// Where its bytes are, if it is memory of another process.
    pub(crate) elsewhere: Option<ForeignPages>,
    /// References by handle and by mapping; it is freed with the last.
    pub(crate) handles: u64,
    pub(crate) mappings: u64,
}

/// Physical memory in the file of another process.
#[derive(Debug, Clone)]
pub(crate) struct ForeignPages {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) offset: usize,
}

/// Physical memory mapped at reserved addresses.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) bytes: usize,
    pub(crate) handle: u64,
    pub(crate) id: u64,
    /// Where its bytes are in the file.
    pub(crate) place: usize,
    pub(crate) device: usize,
    /// By device.
    pub(crate) access: BTreeMap<usize, i32>,
}

impl Mapping {
    /// Returns the access of a device; of all of them together for `None`.
    pub(crate) fn access_of(&self, device: Option<usize>) -> i32 {
        let found = self.access.iter().filter(|&(&other, _)| device.is_none_or(|device| device == other));
        found.fold(0, |all, (_, access)| all | access)
    }
}

/// Where the places of other processes' memory begin, apart from places in the file and of the host.
const FOREIGN_PLACES: usize = 1 << 61;

/// All reservations, physical memory and mappings.
#[derive(Debug, Default)]
pub(crate) struct VirtualMemory {
    /// Bytes by start.
    pub(crate) reservations: BTreeMap<usize, usize>,
    pub(crate) physical: HashMap<u64, PhysicalAllocation>,
    pub(crate) mappings: BTreeMap<usize, Mapping>,
    /// The bytes of other processes' memory so far.
    foreign_bytes: usize,
}

impl VirtualMemory {
    pub(crate) fn reservations(&self) -> Vec<Range<usize>> {
        self.reservations.iter().map(|(&start, &bytes)| start..start + bytes).collect()
    }

    /// Returns a place for memory of another process.
    pub(crate) fn foreign_place(&mut self, bytes: usize) -> usize {
        let place = FOREIGN_PLACES + self.foreign_bytes;
        self.foreign_bytes += bytes;
        place
    }

    /// Returns the physical memory that is not freed: bytes and device.
    pub(crate) fn physical(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        self.physical.iter().map(|(&handle, found)| (handle, found.bytes, found.device))
    }

    pub(crate) fn mapping(&self, address: usize) -> Option<(usize, &Mapping)> {
        let (&start, found) = self.mappings.range(..=address).next_back()?;
        (address - start < found.bytes).then_some((start, found))
    }

    pub(crate) fn locate(&self, address: usize) -> Option<Located> {
        let (start, found) = self.mapping(address)?;
        let (bytes, device, id) = (found.bytes, found.device, found.id);
        Some(Located { start, bytes, kind: SimMemory::Mapped, device, pool: 0, flags: 0, id })
    }

    /// Returns `true` if all bytes are mapped with this access for a device; for any of them, for `None`.
    pub(crate) fn has_access(
        &self,
        address: usize,
        bytes: usize,
        access: i32,
        device: Option<usize>,
    ) -> bool {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            match self.mapping(at) {
                Some((start, found)) if found.access_of(device) & access == access => {
                    at = start + found.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    pub(crate) fn places(&self, address: usize, bytes: usize) -> Vec<Range<usize>> {
        let (mut at, end) = (address, address.saturating_add(bytes));
        let mut places: Vec<Range<usize>> = Vec::new();
        while at < end {
            let Some((start, found)) = self.mapping(at) else { break };
            let next = (start + found.bytes).min(end);
            let place = found.place + (at - start)..found.place + (next - start);
            match places.last_mut() {
                Some(last) if last.end == place.start => last.end = place.end,
                _ => places.push(place),
            }
            at = next;
        }
        places
    }

    /// Returns the starts of the mappings that make up a range exactly.
    pub(crate) fn exact(&self, address: usize, bytes: usize) -> Outcome<Vec<usize>> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(Failure::INVALID_VALUE)?;
        let (mut at, mut starts) = (address, Vec::new());
        for (&start, found) in self.mappings.range(address..end) {
            if start != at {
                return Err(Failure::INVALID_VALUE);
            }
            starts.push(start);
            at = start + found.bytes;
        }
        if at == end { Ok(starts) } else { Err(Failure::INVALID_VALUE) }
    }
}
