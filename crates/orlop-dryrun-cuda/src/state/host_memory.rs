//! [`HostMemory`]: pinned and managed memory, which is real and zeroed, and registered memory of programs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr;

const ALIGNMENT: usize = 4096;

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
    /// Allocates memory; `None` if the host has none.
    pub(crate) fn allocate(&mut self, bytes: usize, kind: HostKind) -> Option<usize> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has at least one byte.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return None;
        }
        let address = memory.expose_provenance();
        self.blocks.insert(address, (bytes, kind));
        Some(address)
    }

    /// Frees memory. Returns `false` if it is not from here.
    pub(crate) fn free(&mut self, address: usize) -> bool {
        let found = self.blocks.get(&address).filter(|(_, kind)| *kind != HostKind::Registered);
        let Some(layout) = found.and_then(|(bytes, _)| layout(*bytes)) else { return false };
        self.blocks.remove(&address);
        // SAFETY: `allocate` returned this address for this layout; it was in the map until this call, so
        // that it is freed once.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(address), layout) };
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
        let (start, (bytes, kind)) = self.blocks.range(..=address).next_back()?;
        (address - start < *bytes).then_some(*kind)
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
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
}
