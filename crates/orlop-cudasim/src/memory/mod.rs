//! Memory of all kinds: host memory behind device addresses, allocations, and what an address belongs to.
//!
//! | file | holds |
//! |---|---|
//! | `access` | what an operation reads and writes |
//! | `arena` | the mappings: a linear region for allocations, addresses for reservations, one file behind
//! both |
//! | `addresses` | free ranges of addresses, first fit |
//! | `bytes` | reads and writes through addresses |
//! | `imports` | memory of other processes |
//! | `process_events` | events that processes share |

mod access;
mod addresses;
mod arena;
pub(crate) mod bytes;
mod imports;
mod process_events;

use crate::codes::{Failure, Outcome};
pub(crate) use access::{CopyShape, MemoryAccess, Reach};
use addresses::AddressRanges;
pub(crate) use arena::Arena;
use imports::Imports;
pub(crate) use imports::{ExportedMemory, HandleMark};
use process_events::EventSlots;
pub(crate) use process_events::{ProcessEvent, ProcessRecord};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of new and of freed device memory, if poison is on.
pub(crate) const NEW_BYTE: u8 = 0xCD;
pub(crate) const FREED_BYTE: u8 = 0xDD;

/// Allocations begin at multiples of this number of bytes, as on a real device.
const ALIGNMENT: usize = 512;

/// Freed ranges of at least this size are given back to the system if poison is off.
const GIVE_BACK: usize = 1 << 20;

/// Except in the first bytes of the arena, as many as this: they are used again soon, and programs spend most
/// of their time on faults of new pages.
const KEPT: usize = 256 << 20;

/// Marks the place of registered host memory, apart from places in the file.
const HOST_PLACE: usize = 1 << 62;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimMemory {
    Device,
    Managed,
    Pinned,
    /// Host memory that the program allocated and registered.
    Registered,
    /// A mapped part of a reservation.
    Mapped,
    /// Device memory of another process.
    Imported,
}

/// What an address belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: SimMemory,
    pub(crate) device: usize,
    /// The pool; 0 for none.
    pub(crate) pool: u64,
    pub(crate) flags: u32,
    /// Unique for each allocation: `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
}

impl Located {
    pub(crate) fn is_host(&self) -> bool {
        matches!(self.kind, SimMemory::Pinned | SimMemory::Registered)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Mapped at the first use.
    arena: Option<Arena>,
    linear: AddressRanges,
    reserved: AddressRanges,
    file: AddressRanges,
    pub(crate) allocations: BTreeMap<usize, Located>,
    imports: Imports,
    event_slots: EventSlots,
    pub(crate) pinned: u64,
    next_id: u64,
}

impl Memory {
    /// Returns the mappings, which are made at the first call.
    pub(crate) fn arena(&mut self) -> Outcome<&Arena> {
        if self.arena.is_none() {
            let arena = Arena::map().ok_or(Failure::OPERATING_SYSTEM)?;
            self.linear = AddressRanges::new(arena.linear());
            self.reserved = AddressRanges::new(arena.reservations());
            self.file = AddressRanges::new(arena.physical());
            self.arena = Some(arena);
        }
        self.arena.as_ref().ok_or(Failure::OPERATING_SYSTEM)
    }

    pub(crate) fn allocate(
        &mut self,
        bytes: usize,
        kind: SimMemory,
        device: usize,
        pool: u64,
        flags: u32,
        has_poison: bool,
    ) -> Outcome<usize> {
        self.arena()?;
        let rounded = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Failure::OUT_OF_MEMORY)?;
        let start = self.linear.take(rounded, ALIGNMENT).ok_or(Failure::OUT_OF_MEMORY)?;
        self.next_id += 1;
        let id = self.next_id;
        self.allocations.insert(start, Located { start, bytes, kind, device, pool, flags, id });
        if has_poison && kind != SimMemory::Managed {
            bytes::fill(start, rounded, NEW_BYTE);
        } else if kind == SimMemory::Managed {
            // Large ranges are discarded, not filled: most of their pages are never touched.
            let is_zero = rounded >= GIVE_BACK && self.arena()?.discard_linear(start, rounded);
            if !is_zero {
                bytes::fill(start, rounded, 0);
            }
        }
        Ok(start)
    }

    /// Registers host memory of the program.
    pub(crate) fn register(&mut self, start: usize, bytes: usize, device: usize, flags: u32) -> Outcome {
        let end = start.checked_add(bytes).ok_or(Failure::INVALID_VALUE)?;
        let before = self.allocations.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.start + other.bytes > start) {
            return Err(Failure::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.next_id += 1;
        let (kind, id) = (SimMemory::Registered, self.next_id);
        self.allocations.insert(start, Located { start, bytes, kind, device, pool: 0, flags, id });
        Ok(())
    }

    /// Removes an allocation and gives its memory back.
    pub(crate) fn release(&mut self, start: usize, has_poison: bool) -> Option<Located> {
        let allocation = self.allocations.remove(&start)?;
        if allocation.kind != SimMemory::Registered {
            let rounded = allocation.bytes.next_multiple_of(ALIGNMENT);
            if has_poison {
                bytes::fill(start, rounded, FREED_BYTE);
            } else if rounded >= GIVE_BACK
                && let Some(arena) = &self.arena
                && start + rounded > arena.linear().start + KEPT
            {
                arena.discard_linear(start, rounded);
            }
            self.linear.put(start..start + rounded);
        }
        Some(allocation)
    }

    pub(crate) fn reserve(&mut self, bytes: usize, alignment: usize) -> Outcome<usize> {
        self.arena()?;
        self.reserved.take(bytes, alignment).ok_or(Failure::OUT_OF_MEMORY)
    }

    pub(crate) fn unreserve(&mut self, range: Range<usize>) {
        self.reserved.put(range);
    }

    /// Unmaps everything in a reservation and gives its addresses back.
    pub(crate) fn drop_reservation(&mut self, range: Range<usize>) {
        if let Some(arena) = &self.arena {
            arena.unmap(range.start, range.len());
        }
        self.unreserve(range);
    }

    /// Takes a range of the file for physical memory.
    pub(crate) fn take_physical(&mut self, bytes: usize, has_poison: bool) -> Outcome<usize> {
        let granularity = 1 << 16;
        self.arena()?;
        let offset = self.file.take(bytes, granularity).ok_or(Failure::OUT_OF_MEMORY)?;
        let arena = self.arena()?;
        if has_poison && !arena.write_physical(offset, bytes, NEW_BYTE) {
            self.put_physical(offset, bytes);
            return Err(Failure::OUT_OF_MEMORY);
        }
        Ok(offset)
    }

    pub(crate) fn put_physical(&mut self, offset: usize, bytes: usize) {
        if let Some(arena) = &self.arena {
            arena.discard_physical(offset, bytes);
        }
        self.file.put(offset..offset + bytes);
    }

    /// Forgets all allocations. The mappings stay: addresses of earlier allocations are used again.
    pub(crate) fn clear(&mut self) {
        if let Some(arena) = &self.arena {
            arena.discard_all();
            self.linear = AddressRanges::new(arena.linear());
            self.reserved = AddressRanges::new(arena.reservations());
            self.file = AddressRanges::new(arena.physical());
        }
        self.imports.forget_all(self.arena.as_ref());
        self.allocations.clear();
        self.pinned = 0;
    }

    pub(crate) fn around(&self, address: usize) -> Option<&Located> {
        let (_, found) = self.allocations.range(..=address).next_back()?;
        (address - found.start < found.bytes).then_some(found)
    }

    /// Returns an access as one for each allocation that it touches.
    pub(crate) fn by_allocation(&self, access: MemoryAccess) -> Vec<MemoryAccess> {
        let (mut parts, mut address) = (Vec::new(), access.address);
        let end = access.address + access.bytes;
        while address < end {
            let of_allocation = self.around(address).map(|found| found.start + found.bytes);
            let part = of_allocation.map_or(end, |allocation| allocation.min(end));
            parts.push(MemoryAccess { address, bytes: part - address, kind: access.kind });
            address = part;
        }
        parts
    }

    /// Returns where bytes of an allocation are, in the file or in registered memory.
    pub(crate) fn place(&self, found: &Located, address: usize, bytes: usize) -> Range<usize> {
        let start = match found.kind {
            SimMemory::Registered => HOST_PLACE + address,
            _ => address - self.arena.as_ref().map_or(0, |arena| arena.linear().start),
        };
        start..start + bytes
    }
}

/// Returns the bytes that an allocation takes of its device.
pub(crate) fn rounded(bytes: usize) -> Outcome<usize> {
    bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Failure::OUT_OF_MEMORY)
}
