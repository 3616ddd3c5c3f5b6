//! NUMA: the number of nodes, the node of an address, and placing pages on a node.
//!
//! Where there is no NUMA, this works as with one node: on one-node machines, under kernels without NUMA, and
//! on systems other than Linux.

use std::ptr::NonNull;

/// Returns the number of nodes with memory; at least one.
#[must_use]
pub fn nodes() -> u32 {
    linux::nodes().max(1)
}

/// Returns the node of the page at `address`. Returns `None` if the page was never touched or is not mapped,
/// or if the kernel does not report it.
#[must_use]
pub fn node_of(address: NonNull<u8>) -> Option<u32> {
    linux::node_of(address)
}

/// Requests the pages of a fresh mapping on `node`. Returns `false` if the kernel refuses; the mapping is
/// usable in any case.
pub fn bind(ptr: NonNull<u8>, bytes: usize, node: u32) -> bool {
    linux::bind(ptr, bytes, node)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_ulong};
    use std::fs;
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;

    const MPOL_PREFERRED: c_int = 1;
    const MPOL_F_NODE: c_ulong = 1;
    const MPOL_F_ADDR: c_ulong = 2;

    pub(super) fn nodes() -> u32 {
        static NODES: OnceLock<u32> = OnceLock::new();
        *NODES.get_or_init(|| {
            let online = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
            count(&online)
        })
    }

    /// Counts a list such as `0-3,8`.
    pub(super) fn count(list: &str) -> u32 {
        let ranges = list.trim().split(',').filter(|range| !range.is_empty());
        ranges
            .filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
                last.checked_sub(first)?.checked_add(1)
            })
            .sum()
    }

    pub(super) fn node_of(address: NonNull<u8>) -> Option<u32> {
        if nodes() == 1 {
            return Some(0);
        }
        let mut node: c_int = -1;
        // SAFETY: with these flags the kernel writes one int, the node of the page at the address, and reads
        // no memory. For an address that is not mapped it returns an error.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                ptr::null_mut::<c_ulong>(),
                0 as c_ulong,
                address.as_ptr(),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        if code == 0 { u32::try_from(node).ok() } else { None }
    }

    pub(super) fn bind(ptr: NonNull<u8>, bytes: usize, node: u32) -> bool {
        // Miri does not support this system call.
        let known = node < nodes() && !cfg!(miri);
        let Some(mask) = 1u64.checked_shl(node).filter(|_| known) else { return false };
        // SAFETY: sets a policy for a mapping of the caller. The mask is one word long, and the kernel
        // expects one bit more than it uses.
        let code = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                ptr.as_ptr(),
                bytes,
                MPOL_PREFERRED,
                &raw const mask,
                65 as c_ulong,
                0,
            )
        };
        code == 0
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use std::ptr::NonNull;

    pub(super) fn nodes() -> u32 {
        1
    }

    pub(super) fn node_of(_: NonNull<u8>) -> Option<u32> {
        Some(0)
    }

    pub(super) fn bind(_: NonNull<u8>, _: usize, _: u32) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_lists_of_nodes() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-1,4,6-7", 5), ("", 0), ("x", 0), ("3-1", 0)] {
            assert_eq!(linux::count(list), count, "{list}");
        }
    }

    #[test]
    fn a_touched_page_is_on_a_node() {
        let word = Box::new(1u64);
        assert!(node_of(NonNull::from(&*word).cast()).is_some_and(|node| node < nodes()));
    }
}
