//! What an address belongs to.

use crate::machine::Machine;
use crate::state::host_memory::HostKind;

/// The owner of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exports) enum Located {
    /// A device, by its number.
    Device(usize),
    Pinned,
    Managed,
    Unknown,
}

pub(in crate::exports) fn locate(machine: &Machine, address: usize) -> Located {
    if machine.memory.is_device(address) {
        return machine
            .memory
            .locate(address)
            .map_or(Located::Unknown, |(device, ..)| Located::Device(device));
    }
    match machine.host.kind_of(address) {
        Some(HostKind::Managed) => Located::Managed,
        Some(HostKind::Pinned | HostKind::Registered) => Located::Pinned,
        None => Located::Unknown,
    }
}
