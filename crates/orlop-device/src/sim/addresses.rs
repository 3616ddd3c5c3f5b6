//! Where a device without memory says that its memory is.
//!
//! It matters: of free blocks that fit equally well an allocator takes the lowest.

use std::collections::BTreeMap;

/// Addresses are whole ones of these.
const STEP: usize = 2 << 20;

/// No memory reaches beyond this: differences of addresses would overflow.
pub(crate) const LAST_ADDRESS: usize = isize::MAX.unsigned_abs() / STEP * STEP;

/// CUDA's driver takes addresses from the system in whole ones of these.
const CHUNK: usize = 32 << 20;

/// The end of the addresses that it has.
const TOP: usize = 1 << 47;

/// So many gaps are looked at.
const GAPS: usize = 1 << 10;

/// Hands addresses out.
#[derive(Debug)]
pub(crate) struct Places {
    /// Where the next range begins, and without chunks all that is next.
    next: usize,
    chunks: Option<Chunks>,
}

/// As CUDA's driver does it, as far as it was watched (an H100, driver 580): from the top down in chunks, and into the lowest
/// gap that is large enough before that.
#[derive(Debug)]
struct Chunks {
    /// The lowest chunk begins here.
    bottom: usize,
    /// Where gaps are, and how large.
    gaps: BTreeMap<usize, usize>,
    /// Something is held that does not consist of whole steps, which gaps do.
    has_parts: bool,
}

impl Places {
    /// One after the other, upwards.
    pub(crate) fn upwards(first: usize) -> Self {
        Self { next: first, chunks: None }
    }

    /// As CUDA's driver places them.
    pub(crate) fn like_cuda() -> Self {
        Self { next: TOP, chunks: Some(Chunks { bottom: TOP, gaps: BTreeMap::new(), has_parts: false }) }
    }

    pub(crate) fn are_like_cuda(&self) -> bool {
        self.chunks.is_some()
    }

    /// Addresses of memory.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(STEP)?;
        match &mut self.chunks {
            Some(chunks) => chunks.allocate(bytes),
            None => self.reserve(bytes),
        }
    }

    /// Memory that was [allocated](Self::allocate) has gone. Going upwards no address comes twice.
    pub(crate) fn release(&mut self, address: usize, bytes: usize) {
        if let (Some(chunks), Some(bytes)) = (&mut self.chunks, bytes.checked_next_multiple_of(STEP))
            && chunks.bottom <= address
            && address < TOP
            && !chunks.has_parts
        {
            chunks.release(address, bytes);
        }
    }

    /// A range of addresses.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let start = self.next;
        let end = start.checked_add(bytes.checked_next_multiple_of(STEP)?)?;
        // As real address spaces, this one ends where differences of addresses would overflow.
        isize::try_from(end).ok()?;
        self.next = end;
        Some(start)
    }

    /// What is given out later lies behind this range; in chunks, below it. False if there is no room.
    pub(crate) fn hold(&mut self, address: usize, bytes: usize) -> bool {
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(STEP));
        let Some(end) = end.filter(|&end| isize::try_from(end).is_ok()) else { return false };
        match &mut self.chunks {
            Some(chunks) if address < TOP => {
                chunks.bottom = chunks.bottom.min(address - address % CHUNK);
                chunks.has_parts |= !address.is_multiple_of(STEP) || !bytes.is_multiple_of(STEP);
            }
            _ => self.next = self.next.max(end),
        }
        true
    }
}

impl Chunks {
    fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let found = self.gaps.iter().take(GAPS).find(|&(_, &gap)| gap >= bytes);
        if let Some((&at, &gap)) = found {
            self.gaps.remove(&at);
            self.leave(at + bytes, gap - bytes);
            return Some(at);
        }
        let chunk = bytes.checked_next_multiple_of(CHUNK)?;
        self.bottom = self.bottom.checked_sub(chunk).filter(|&bottom| bottom > 0)?;
        self.leave(self.bottom + bytes, chunk - bytes);
        Some(self.bottom)
    }

    fn release(&mut self, address: usize, bytes: usize) {
        let (mut start, mut end) = (address, address.saturating_add(bytes));
        if let Some((&before, &gap)) = self.gaps.range(..start).next_back()
            && before + gap == start
        {
            self.gaps.remove(&before);
            start = before;
        }
        if let Some(gap) = self.gaps.remove(&end) {
            end += gap;
        }
        self.leave(start, end - start);
    }

    fn leave(&mut self, at: usize, bytes: usize) {
        if bytes > 0 {
            self.gaps.insert(at, bytes);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn upwards_no_address_comes_twice() {
        let mut places = Places::upwards(64 * MIB);
        assert_eq!(places.allocate(1), Some(64 * MIB));
        places.release(64 * MIB, 1);
        assert_eq!(places.reserve(3 * MIB), Some(66 * MIB));
        assert_eq!(places.allocate(MIB), Some(70 * MIB));
        assert_eq!(places.allocate(usize::MAX), None);
    }

    /// The first segments of a run on a GPU, from the top.
    #[test]
    fn chunks_go_down_and_gaps_are_used() {
        let mut places = Places::like_cuda();
        let mut at = |mib: usize| places.allocate(mib * MIB).map(|address| (TOP - address) / MIB);
        assert_eq!([at(20), at(2), at(20), at(10), at(25)], [32, 12, 64, 44, 96].map(Some));
        assert_eq!([at(2), at(128), at(160)], [70, 224, 384].map(Some));
    }

    #[test]
    fn what_has_gone_is_a_gap_with_those_around_it() {
        let mut places = Places::like_cuda();
        let all: Vec<usize> = (0..4).filter_map(|_| places.allocate(16 * MIB)).collect();
        for &address in [&all[1], &all[2], &all[3]] {
            places.release(address, 16 * MIB);
        }
        assert_eq!(places.allocate(32 * MIB), Some(TOP - 64 * MIB));
        assert_eq!(places.allocate(16 * MIB), Some(all[1]));
        assert_eq!(places.reserve(MIB), Some(TOP));
        assert_eq!(places.allocate(TOP), None);
        assert!(places.hold(TOP - 1000 * MIB, 20 * MIB));
        assert_eq!(places.allocate(64 * MIB), Some(TOP - 1088 * MIB));
    }
}
