//! [`AddressSpace`]: device addresses, without memory behind them.
//!
//! They are a range of the process that nothing else can get and nothing can access: an address tells whether
//! it is a device's, and host code that dereferences one fails as it would on a GPU.
//!
//! Addresses are given in the order in which CUDA's driver was observed to give them (580, on an H100): the
//! lowest gap that fits among those in use, else below all of them, in steps of 32 MiB. PyTorch's allocator
//! breaks ties by address, so that the order decides which block it takes. Reservations are apart, from
//! below.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of the range.
const BYTES: usize = 1 << 45;

/// Where the range begins if the system gives none: far from where it maps anything by itself.
const FALLBACK: usize = 0x1000_0000_0000;

const PAGE: usize = 2 << 20;
const STEP: usize = 32 << 20;

/// Addresses in use and free ones.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    range: Range<usize>,
    /// The lowest address that an allocation had.
    bottom: usize,
    /// Ends of allocations, by start.
    allocated: BTreeMap<usize, usize>,
    /// The end of all reservations, and gaps below it: ends, by start.
    reserved: usize,
    gaps: BTreeMap<usize, usize>,
}

impl AddressSpace {
    pub(crate) fn new() -> Self {
        let start = map_inaccessible(BYTES).unwrap_or(FALLBACK).next_multiple_of(STEP);
        let end = start + BYTES - STEP;
        Self {
            range: start..end,
            bottom: end,
            allocated: BTreeMap::new(),
            reserved: start,
            gaps: BTreeMap::new(),
        }
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.range.contains(&address)
    }

    /// Takes addresses for an allocation.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let mut start = self.bottom;
        for (&taken, &end) in &self.allocated {
            if taken.saturating_sub(start) >= bytes {
                break;
            }
            start = end;
        }
        if self.range.end - start < bytes {
            let step = bytes.checked_next_multiple_of(STEP)?;
            let below = self.bottom.checked_sub(step)?;
            if below < self.reserved {
                return None;
            }
            self.bottom = below;
            start = below;
        }
        self.allocated.insert(start, start + bytes);
        Some(start)
    }

    /// Gives the addresses of an allocation back.
    pub(crate) fn put(&mut self, start: usize) {
        self.allocated.remove(&start);
    }

    /// Takes addresses for a reservation.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let gap =
            self.gaps.iter().find(|&(&start, &end)| end - start >= bytes).map(|(&start, &end)| (start, end));
        if let Some((start, end)) = gap {
            self.gaps.remove(&start);
            if end - start > bytes {
                self.gaps.insert(start + bytes, end);
            }
            return Some(start);
        }
        let end = self.reserved.checked_add(bytes).filter(|&end| end <= self.bottom)?;
        Some(std::mem::replace(&mut self.reserved, end))
    }

    /// Gives the addresses of a reservation back.
    pub(crate) fn unreserve(&mut self, start: usize, bytes: usize) {
        let Some(mut end) = bytes.checked_next_multiple_of(PAGE).map(|bytes| start + bytes) else { return };
        let mut start = start;
        if let Some(after) = self.gaps.remove(&end) {
            end = after;
        }
        let before = self.gaps.range(..start).next_back().map(|(&start, &end)| (start, end));
        if let Some((before, its_end)) = before
            && its_end == start
        {
            start = before;
        }
        self.gaps.insert(start, end);
    }
}

/// Maps a range that cannot be accessed. It takes no memory.
fn map_inaccessible(bytes: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the system chooses changes no existing one.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then(|| mapped.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_fill_the_lowest_gap_and_then_grow_downwards() {
        let mut space = AddressSpace::new();
        let first = space.take(20 << 20).unwrap();
        assert_eq!(first, space.range.end - STEP);
        // The rest of the step is a gap.
        let second = space.take(2 << 20).unwrap();
        assert_eq!(second, first + (20 << 20));
        let third = space.take(40 << 20).unwrap();
        assert_eq!(third, first - 2 * STEP);
        space.put(first);
        assert_eq!(space.take(2 << 20).unwrap(), third + (40 << 20));
    }

    #[test]
    fn reservations_are_reused_and_never_meet_allocations() {
        let mut space = AddressSpace::new();
        let (first, second) = (space.reserve(1 << 40).unwrap(), space.reserve(1 << 30).unwrap());
        assert_eq!(second, first + (1 << 40));
        space.unreserve(first, 1 << 40);
        assert_eq!(space.reserve(1 << 31), Some(first));
        assert_eq!(space.reserve(BYTES), None);
        assert_eq!(space.take(BYTES), None);
    }
}
