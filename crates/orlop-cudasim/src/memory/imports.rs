//! Memory of other processes: parts of their files, mapped into the linear region.

use super::arena::Arena;
use super::{Located, Memory, SimMemory};
use crate::abi::IpcHandle;
use crate::codes::{Failure, Outcome};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The unit of mappings.
const PAGE: usize = 4096;

/// Memory that a process exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportedMemory {
    pub(crate) process: u32,
    /// The descriptor of the file in that process.
    pub(crate) descriptor: i32,
    /// Where the memory is in the file.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) device: usize,
}

/// What is behind a handle for other processes: the first number of it.
#[repr(u64)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandleMark {
    Allocation = 0x6f72_6c6f_7069_7063,
    Event = 0x6f72_6c6f_7065_766e,
    Pages = 0x6f72_6c6f_7070_6773,
}

impl ExportedMemory {
    /// Packs the description into a handle.
    pub(crate) fn pack(&self, mark: HandleMark) -> IpcHandle {
        let descriptor = self.descriptor.unsigned_abs();
        let (offset, bytes, device) = (self.offset as u64, self.bytes as u64, self.device as u64);
        IpcHandle::of([mark as u64, self.process.into(), descriptor.into(), offset, bytes, device, 0, 0])
    }

    /// Returns what [`ExportedMemory::pack`] packed.
    pub(crate) fn unpack(handle: &IpcHandle, mark: HandleMark) -> Outcome<Self> {
        fn number<T: TryFrom<u64>>(number: u64) -> Outcome<T> {
            T::try_from(number).map_err(|_| Failure::INVALID_VALUE)
        }
        let [found, process, descriptor, offset, bytes, device, 0, 0] = handle.numbers() else {
            return Err(Failure::INVALID_VALUE);
        };
        if found != mark as u64 {
            return Err(Failure::INVALID_VALUE);
        }
        Ok(Self {
            process: number(process)?,
            descriptor: number(descriptor)?,
            offset: number(offset)?,
            bytes: number(bytes)?,
            device: number(device)?,
        })
    }

    /// Opens the file of the process.
    pub(crate) fn open(&self) -> Outcome<OwnedFd> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = File::options().read(true).write(true).open(path);
        Ok(file.map_err(|_| Failure::INVALID_VALUE)?.into())
    }
}

/// What is imported, by address.
#[derive(Debug, Default)]
pub(super) struct Imports {
    open: BTreeMap<usize, Import>,
}

#[derive(Debug)]
struct Import {
    memory: ExportedMemory,
    /// The addresses of its mapping.
    mapped: Range<usize>,
    /// How often it was opened and not closed.
    users: u64,
}

impl Imports {
    /// Unmaps everything.
    pub(super) fn forget_all(&mut self, arena: Option<&Arena>) {
        for import in std::mem::take(&mut self.open).into_values() {
            if let Some(arena) = arena {
                arena.unmap_foreign(import.mapped.start, import.mapped.len());
            }
        }
    }
}

impl Memory {
    /// Describes an allocation for other processes.
    pub(crate) fn export(&mut self, found: &Located) -> Outcome<ExportedMemory> {
        let arena = self.arena()?;
        let offset = found.start - arena.linear().start;
        let (process, descriptor) = (std::process::id(), arena.descriptor());
        Ok(ExportedMemory { process, descriptor, offset, bytes: found.bytes, device: found.device })
    }

    /// Maps memory of another process, or counts one more user if it is mapped. Returns its address.
    pub(crate) fn import(&mut self, memory: ExportedMemory) -> Outcome<usize> {
        if let Some((&address, open)) = self.imports.open.iter_mut().find(|(_, open)| open.memory == memory) {
            open.users += 1;
            return Ok(address);
        }
        let file = memory.open()?;
        self.arena()?;
        let shift = memory.offset % PAGE;
        let bytes = (shift + memory.bytes).next_multiple_of(PAGE);
        let start = self.linear.take(bytes, PAGE).ok_or(Failure::OUT_OF_MEMORY)?;
        let mapped = start..start + bytes;
        if !self.arena()?.map_foreign(start, &file, memory.offset - shift, bytes) {
            self.linear.put(mapped);
            return Err(Failure::OPERATING_SYSTEM);
        }
        self.next_id += 1;
        let (start, kind, id) = (start + shift, SimMemory::Imported, self.next_id);
        let located =
            Located { start, bytes: memory.bytes, kind, device: memory.device, pool: 0, flags: 0, id };
        self.allocations.insert(start, located);
        self.imports.open.insert(start, Import { memory, mapped, users: 1 });
        Ok(start)
    }

    /// Returns `true` if closing memory of another process now unmaps it.
    pub(crate) fn is_last_user(&self, address: usize) -> Outcome<bool> {
        self.imports.open.get(&address).map(|open| open.users == 1).ok_or(Failure::INVALID_VALUE)
    }

    /// Removes a user of memory of another process, and unmaps it after the last.
    pub(crate) fn close_import(&mut self, address: usize) -> Outcome {
        let open = self.imports.open.get_mut(&address).ok_or(Failure::INVALID_VALUE)?;
        open.users -= 1;
        if open.users > 0 {
            return Ok(());
        }
        self.allocations.remove(&address);
        let Some(Import { mapped, .. }) = self.imports.open.remove(&address) else { return Ok(()) };
        if !self.arena()?.unmap_foreign(mapped.start, mapped.len()) {
            return Err(Failure::OPERATING_SYSTEM);
        }
        self.linear.put(mapped);
        Ok(())
    }
}
