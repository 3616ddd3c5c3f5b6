//! [`HostMemory`]: pinned and managed memory, which is real and zeroed, and registered memory of programs.

use std::collections::BTreeMap;
use std::ptr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    Pinned,
    Managed,
    /// Memory of the program that it registered.
    Registered,
}

/// All of it, by address.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    blocks: BTreeMap<usize, (usize, HostKind)>,
}

impl HostMemory {
    /// Maps memory; `None` if the host has none. Its pages are zeros, and take memory when they are used.
    pub(crate) fn allocate(&mut self, bytes: usize, kind: HostKind) -> Option<usize> {
        let (readable, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address of the kernel's choice, that replaces no other.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes.max(1), readable, private, -1, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let address = memory.expose_provenance();
        self.blocks.insert(address, (bytes, kind));
        Some(address)
    }

    /// Frees memory. Returns `false` if it is not from here.
    pub(crate) fn free(&mut self, address: usize) -> bool {
        let found = self.blocks.get(&address).filter(|(_, kind)| *kind != HostKind::Registered);
        let Some(&(bytes, _)) = found else { return false };
        self.blocks.remove(&address);
        // SAFETY: `allocate` mapped this many bytes at this address; it was in the map until this call, so
        // that it is unmapped once.
        let code = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), bytes.max(1)) };
        debug_assert_eq!(code, 0, "a mapping of our own can be unmapped");
        true
    }

    pub(crate) fn register(&mut self, address: usize, bytes: usize) {
        self.blocks.entry(address).or_insert((bytes, HostKind::Registered));
    }

    pub(crate) fn unregister(&mut self, address: usize) -> bool {
        let is_registered = self.blocks.get(&address).is_some_and(|(_, kind)| *kind == HostKind::Registered);
        is_registered && self.blocks.remove(&address).is_some()
    }

    /// Returns the kind of memory at an address.
    pub(crate) fn kind_of(&self, address: usize) -> Option<HostKind> {
        self.find(address).map(|(.., kind)| kind)
    }

    /// Returns the block at an address: its start, its bytes, its kind.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, usize, HostKind)> {
        let (&start, &(bytes, kind)) = self.blocks.range(..=address).next_back()?;
        (address - start < bytes).then_some((start, bytes, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_once_and_registered_memory_never() {
        let mut host = HostMemory::default();
        let pinned = host.allocate(100, HostKind::Pinned).unwrap();
        assert_eq!((host.kind_of(pinned + 99), host.kind_of(pinned + 100)), (Some(HostKind::Pinned), None));
        assert!(host.free(pinned) && !host.free(pinned));
        host.register(64, 8);
        assert!(!host.free(64) && host.unregister(64) && !host.unregister(64));
    }

    #[test]
    fn memory_takes_pages_only_when_it_is_used() {
        const PAGES: usize = 256;
        let mut host = HostMemory::default();
        let pinned = host.allocate(PAGES * 4096, HostKind::Pinned).unwrap();
        let mut resident = [1_u8; PAGES];
        // SAFETY: the range is mapped, and there is a byte for each page.
        let code = unsafe {
            libc::mincore(ptr::with_exposed_provenance_mut(pinned), PAGES * 4096, resident.as_mut_ptr())
        };
        assert_eq!((code, resident), (0, [0; PAGES]));
        assert!(host.free(pinned));
    }
}
