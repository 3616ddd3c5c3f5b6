//! The addresses of a device without memory.
//!
//! They matter: of free blocks that fit equally well an allocator takes the lowest.

use std::collections::BTreeMap;

/// Regions begin at multiples of this many bytes, and are rounded up to them.
const GRANULE: usize = 2 << 20;

/// No memory reaches beyond this address: differences of addresses would overflow.
pub(crate) const LAST_ADDRESS: usize = isize::MAX.unsigned_abs() / GRANULE * GRANULE;

/// CUDA's driver takes address space from the system in multiples of this many bytes.
const CUDA_BLOCK: usize = 32 << 20;

/// The end of the addresses of CUDA's driver.
const CUDA_END: usize = 1 << 47;

/// A search looks at this many gaps at most.
const MAX_GAPS: usize = 1 << 10;

/// Hands addresses out.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    /// The start of the next reservation and, of regions that ascend, of the next one.
    next: usize,
    order: RegionOrder,
}

/// Where regions go.
#[derive(Debug)]
enum RegionOrder {
    /// Each above all before.
    Ascending,
    /// Each below all before: this is the start of the last one.
    Descending(usize),
    /// In the lowest hole that is large enough: these are the holes below `next`.
    LowestHole(Gaps),
    Cuda(CudaLayout),
}

/// Bytes of gaps by address.
type Gaps = BTreeMap<usize, usize>;

/// The placement of CUDA's driver, as far as it was observed (an H100, driver 580): descending from the top
/// in blocks, after the lowest gap that is large enough.
#[derive(Debug)]
struct CudaLayout {
    /// The start of the lowest block.
    bottom: usize,
    /// Bytes of the gaps, by address.
    gaps: Gaps,
    /// Whether an occupied range is not a multiple of the granule, as gaps are.
    has_parts: bool,
}

impl AddressSpace {
    /// One region after the other, ascending from `first`.
    pub(crate) fn ascending(first: usize) -> Self {
        Self { next: first, order: RegionOrder::Ascending }
    }

    /// Regions descend from `top`; reservations ascend from `first`.
    pub(crate) fn descending(first: usize, top: usize) -> Self {
        Self { next: first, order: RegionOrder::Descending(top) }
    }

    /// Regions fill the lowest holes from `first` on.
    pub(crate) fn lowest_hole(first: usize) -> Self {
        Self { next: first, order: RegionOrder::LowestHole(Gaps::new()) }
    }

    /// As CUDA's driver addresses regions.
    pub(crate) fn like_cuda() -> Self {
        let cuda = CudaLayout { bottom: CUDA_END, gaps: Gaps::new(), has_parts: false };
        Self { next: CUDA_END, order: RegionOrder::Cuda(cuda) }
    }

    /// Returns `true` if regions are placed as CUDA's driver does it.
    pub(crate) fn is_like_cuda(&self) -> bool {
        matches!(self.order, RegionOrder::Cuda(_))
    }

    /// Returns the address of a new region.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(GRANULE)?;
        match &mut self.order {
            RegionOrder::Ascending => self.reserve(bytes),
            RegionOrder::Descending(last) => {
                *last = last.checked_sub(bytes).filter(|&start| start > 0)?;
                Some(*last)
            }
            RegionOrder::LowestHole(gaps) => match take_gap(gaps, bytes, usize::MAX) {
                Some(start) => Some(start),
                None => self.reserve(bytes),
            },
            RegionOrder::Cuda(cuda) => cuda.allocate(bytes),
        }
    }

    /// Takes back the addresses of a region from [`allocate`](Self::allocate). In ascending and in descending
    /// order no address is used twice.
    pub(crate) fn release(&mut self, address: usize, bytes: usize) {
        let Some(bytes) = bytes.checked_next_multiple_of(GRANULE) else { return };
        match &mut self.order {
            RegionOrder::LowestHole(gaps) => {
                give_gap(gaps, address, bytes);
                // The last hole has no end.
                if let Some((start, _)) = gaps.last_key_value().filter(|&(&at, &gap)| at + gap == self.next) {
                    self.next = *start;
                    gaps.pop_last();
                }
            }
            RegionOrder::Cuda(cuda) if cuda.bottom <= address && address < CUDA_END && !cuda.has_parts => {
                give_gap(&mut cuda.gaps, address, bytes);
            }
            _ => {}
        }
    }

    /// Returns the address of a new reservation.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let start = self.next;
        let end = start.checked_add(bytes.checked_next_multiple_of(GRANULE)?)?;
        // As real address spaces, this one ends where differences of addresses would overflow.
        isize::try_from(end).ok()?;
        self.next = end;
        Some(start)
    }

    /// Keeps later regions and reservations out of a range: they are above it or, in a CUDA layout, below.
    /// Returns `false` if there is no room.
    pub(crate) fn occupy(&mut self, address: usize, bytes: usize) -> bool {
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(GRANULE));
        let Some(end) = end.filter(|&end| isize::try_from(end).is_ok()) else { return false };
        match &mut self.order {
            RegionOrder::Cuda(cuda) if address < CUDA_END => {
                cuda.bottom = cuda.bottom.min(address - address % CUDA_BLOCK);
                cuda.has_parts |= !address.is_multiple_of(GRANULE) || !bytes.is_multiple_of(GRANULE);
            }
            _ => self.next = self.next.max(end),
        }
        true
    }
}

impl CudaLayout {
    fn allocate(&mut self, bytes: usize) -> Option<usize> {
        if let Some(start) = take_gap(&mut self.gaps, bytes, MAX_GAPS) {
            return Some(start);
        }
        let block = bytes.checked_next_multiple_of(CUDA_BLOCK)?;
        self.bottom = self.bottom.checked_sub(block).filter(|&bottom| bottom > 0)?;
        add_gap(&mut self.gaps, self.bottom + bytes, block - bytes);
        Some(self.bottom)
    }
}

/// Takes `bytes` bytes out of the lowest gap that has them, of the lowest `tries`.
fn take_gap(gaps: &mut Gaps, bytes: usize, tries: usize) -> Option<usize> {
    let (&start, &gap) = gaps.iter().take(tries).find(|&(_, &gap)| gap >= bytes)?;
    gaps.remove(&start);
    add_gap(gaps, start + bytes, gap - bytes);
    Some(start)
}

/// Adds a gap, joined with those around it.
fn give_gap(gaps: &mut Gaps, address: usize, bytes: usize) {
    let (mut start, mut end) = (address, address.saturating_add(bytes));
    if let Some((&before, &gap)) = gaps.range(..start).next_back()
        && before + gap == start
    {
        gaps.remove(&before);
        start = before;
    }
    if let Some(gap) = gaps.remove(&end) {
        end += gap;
    }
    add_gap(gaps, start, end - start);
}

fn add_gap(gaps: &mut Gaps, start: usize, bytes: usize) {
    if bytes > 0 {
        gaps.insert(start, bytes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn ascending_addresses_are_used_once() {
        let mut addresses = AddressSpace::ascending(64 * MIB);
        assert_eq!(addresses.allocate(1), Some(64 * MIB));
        addresses.release(64 * MIB, 1);
        assert_eq!(addresses.reserve(3 * MIB), Some(66 * MIB));
        assert_eq!(addresses.allocate(MIB), Some(70 * MIB));
        assert_eq!(addresses.allocate(usize::MAX), None);
    }

    #[test]
    fn holes_are_filled_from_below() {
        let mut addresses = AddressSpace::lowest_hole(64 * MIB);
        let all: Vec<usize> = [2, 4, 20, 2].iter().filter_map(|mib| addresses.allocate(mib * MIB)).collect();
        assert_eq!(all, [64, 66, 70, 90].map(|mib| mib * MIB));
        addresses.release(all[2], 20 * MIB);
        addresses.release(all[1], 4 * MIB);
        assert_eq!(addresses.allocate(26 * MIB), Some(92 * MIB));
        assert_eq!(addresses.allocate(21 * MIB), Some(66 * MIB), "the two holes are one");
        assert_eq!(addresses.allocate(1), Some(88 * MIB));
        addresses.release(92 * MIB, 26 * MIB);
        assert_eq!(addresses.allocate(40 * MIB), Some(92 * MIB), "the last hole has no end");
    }

    #[test]
    fn descending_addresses_are_used_once() {
        let mut addresses = AddressSpace::descending(MIB, 64 * MIB);
        assert_eq!(addresses.allocate(1), Some(62 * MIB));
        addresses.release(62 * MIB, 1);
        assert_eq!(addresses.allocate(3 * MIB), Some(58 * MIB));
        assert_eq!(addresses.reserve(1), Some(MIB));
        assert_eq!(addresses.allocate(58 * MIB), None);
    }

    /// The first segments of a run on a GPU, from the top.
    #[test]
    fn blocks_descend_and_gaps_are_used() {
        let mut addresses = AddressSpace::like_cuda();
        let mut at = |mib: usize| addresses.allocate(mib * MIB).map(|address| (CUDA_END - address) / MIB);
        assert_eq!([at(20), at(2), at(20), at(10), at(25)], [32, 12, 64, 44, 96].map(Some));
        assert_eq!([at(2), at(128), at(160)], [70, 224, 384].map(Some));
    }

    #[test]
    fn a_released_region_is_a_gap_with_those_around_it() {
        let mut addresses = AddressSpace::like_cuda();
        let all: Vec<usize> = (0..4).filter_map(|_| addresses.allocate(16 * MIB)).collect();
        for &address in [&all[1], &all[2], &all[3]] {
            addresses.release(address, 16 * MIB);
        }
        assert_eq!(addresses.allocate(32 * MIB), Some(CUDA_END - 64 * MIB));
        assert_eq!(addresses.allocate(16 * MIB), Some(all[1]));
        assert_eq!(addresses.reserve(MIB), Some(CUDA_END));
        assert_eq!(addresses.allocate(CUDA_END), None);
        assert!(addresses.occupy(CUDA_END - 1000 * MIB, 20 * MIB));
        assert_eq!(addresses.allocate(64 * MIB), Some(CUDA_END - 1088 * MIB));
    }
}
