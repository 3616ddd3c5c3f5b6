//! Where each extent of the file is: free, or mapped at one address.
//!
//! Plain bookkeeping, without a system under it: [`FreeExtents`] and [`MappedExtents`] together say where
//! every byte of the file is. An extent moves from one to the other by value, so that it is never in both.

use std::collections::BTreeMap;

/// A contiguous range of bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// Free extents, which are mapped nowhere: by offset, neighbours merged.
#[derive(Debug, Default)]
pub(super) struct FreeExtents {
    extents: BTreeMap<usize, usize>,
    bytes: usize,
}

impl FreeExtents {
    /// Creates the free extents of a file of `bytes` bytes: all of it.
    pub(super) fn new(bytes: usize) -> Self {
        let mut free = Self::default();
        free.give(Extent { offset: 0, bytes });
        free
    }

    /// Takes extents of `bytes` bytes in all; `None` if there are fewer. It is one if one is long enough:
    /// what is contiguous in the file and in memory is one mapping, and a process may have a limited number
    /// of those.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Vec<Extent>> {
        if bytes > self.bytes {
            return None;
        }
        let mut taken = Vec::new();
        let mut missing = bytes;
        let whole = self.extents.iter().find(|&(_, &long)| long >= bytes).map(|(&offset, _)| offset);
        while missing > 0 {
            let first = whole.or_else(|| self.extents.keys().next().copied());
            let Some((offset, long)) = first.and_then(|offset| self.extents.remove_entry(&offset)) else {
                // Never: together they are `bytes`.
                break;
            };
            let bytes = long.min(missing);
            if bytes < long {
                self.extents.insert(offset + bytes, long - bytes);
            }
            taken.push(Extent { offset, bytes });
            missing -= bytes;
        }
        self.bytes -= bytes;
        Some(taken)
    }

    /// Gives an extent back.
    pub(super) fn give(&mut self, extent: Extent) {
        let Extent { mut offset, bytes } = extent;
        if bytes == 0 {
            return;
        }
        self.bytes += bytes;
        let mut long = bytes;
        if let Some(behind) = self.extents.remove(&(offset + long)) {
            long += behind;
        }
        if let Some((&before, &its)) = self.extents.range(..offset).next_back()
            && before + its == offset
        {
            (offset, long) = (before, its + long);
        }
        self.extents.insert(offset, long);
    }
}

/// Mapped extents, by address.
#[derive(Debug, Default)]
pub(super) struct MappedExtents {
    extents: BTreeMap<usize, Extent>,
}

impl MappedExtents {
    pub(super) fn insert(&mut self, address: usize, extent: Extent) {
        let before = self.extents.insert(address, extent);
        debug_assert!(before.is_none(), "two extents at one address");
    }

    /// Returns `true` if anything is mapped in a range of addresses.
    pub(super) fn is_any(&self, address: usize, bytes: usize) -> bool {
        let last = self.extents.range(..address + bytes).next_back();
        last.is_some_and(|(&at, extent)| at + extent.bytes > address)
    }

    /// Removes what is mapped in a range of addresses, and returns it in order of address. Extents that reach
    /// out of the range are split.
    pub(super) fn take(&mut self, address: usize, bytes: usize) -> Vec<Extent> {
        self.cut(address);
        self.cut(address + bytes);
        let inside: Vec<usize> = self.extents.range(address..address + bytes).map(|(&at, _)| at).collect();
        inside.iter().filter_map(|at| self.extents.remove(at)).collect()
    }

    /// Returns what is mapped in a range of addresses, in order. Extents that reach out of the range are
    /// split.
    pub(super) fn inside(&mut self, address: usize, bytes: usize) -> impl Iterator<Item = Extent> + '_ {
        self.cut(address);
        self.cut(address + bytes);
        self.extents.range(address..address + bytes).map(|(_, &extent)| extent)
    }

    /// Splits the extent across an address.
    fn cut(&mut self, address: usize) {
        if let Some((&at, extent)) = self.extents.range_mut(..address).next_back()
            && at + extent.bytes > address
        {
            let front = address - at;
            let behind = Extent { offset: extent.offset + front, bytes: extent.bytes - front };
            extent.bytes = front;
            self.extents.insert(address, behind);
        }
    }
}

#[cfg(test)]
pub(super) mod proof {
    use super::{Extent, FreeExtents, MappedExtents};

    /// Panics unless every byte of the file is free or under one address, and no address has two.
    pub(in super::super) fn every_byte_is_in_one_place(
        file: usize,
        free: &FreeExtents,
        placed: &MappedExtents,
    ) {
        let loose = free.extents.iter().map(|(&offset, &bytes)| Extent { offset, bytes });
        let mut all: Vec<Extent> = loose.chain(placed.extents.values().copied()).collect();
        all.sort_unstable_by_key(|extent| extent.offset);
        let end = all.iter().fold(0, |end, extent| {
            assert_eq!(end, extent.offset, "a gap, or an extent in two places");
            end + extent.bytes
        });
        assert_eq!(end, file);
        assert_eq!(free.extents.values().sum::<usize>(), free.bytes);
        let mut last = 0;
        for (&address, extent) in &placed.extents {
            assert!(last <= address, "two extents at one address");
            last = address + extent.bytes;
        }
    }

    /// Panics unless the system has the same mappings, however it divides them.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn the_system_agrees(mapped: Vec<(usize, Extent)>, placed: &MappedExtents) {
        let known = placed.extents.iter().map(|(&address, &extent)| (address, extent)).collect();
        assert_eq!(joined(mapped), joined(known), "the mappings of the system are those on record");
    }

    #[cfg(target_os = "linux")]
    fn joined(extents: Vec<(usize, Extent)>) -> Vec<(usize, Extent)> {
        let mut joined: Vec<(usize, Extent)> = Vec::new();
        for (address, extent) in extents {
            match joined.last_mut() {
                Some((at, last))
                    if *at + last.bytes == address && last.offset + last.bytes == extent.offset =>
                {
                    last.bytes += extent.bytes;
                }
                _ => joined.push((address, extent)),
            }
        }
        joined
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(offset: usize, bytes: usize) -> Extent {
        Extent { offset, bytes }
    }

    #[test]
    fn one_extent_is_preferred_and_several_serve() {
        let mut free = FreeExtents::new(10);
        let first = free.take(2).unwrap();
        let second = free.take(3).unwrap();
        assert_eq!((first[0], second[0]), (extent(0, 2), extent(2, 3)));
        free.give(first[0]);
        assert_eq!(free.take(4), Some(vec![extent(5, 4)]), "the first that is long enough");
        assert_eq!(free.take(4), None);
        assert_eq!(free.take(3), Some(vec![extent(0, 2), extent(9, 1)]));
        assert_eq!(free.bytes, 0);
        free.give(second[0]);
        assert_eq!(free.bytes, 3);
    }

    #[test]
    fn extents_across_a_border_are_cut() {
        let mut placed = MappedExtents::default();
        placed.insert(100, extent(0, 10));
        placed.insert(110, extent(50, 10));
        assert!(placed.is_any(90, 11) && placed.is_any(119, 1));
        assert!(!placed.is_any(90, 10) && !placed.is_any(120, 5));
        assert_eq!(placed.take(104, 12), [extent(4, 6), extent(50, 6)]);
        assert_eq!(placed.take(0, 1000), [extent(0, 4), extent(56, 4)]);
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, usize, usize)>> {
        let count = if cfg!(miri) { 6 } else { 60 };
        prop::collection::vec((any::<bool>(), 0_usize..64, 1_usize..20), 0..count)
    }

    proptest! {
        #[test]
        fn every_byte_stays_in_one_place(steps in steps()) {
            let (mut free, mut placed) = (FreeExtents::new(100), MappedExtents::default());
            for (maps, address, bytes) in steps {
                if maps && !placed.is_any(address, bytes) {
                    let mut at = address;
                    for extent in free.take(bytes).unwrap_or_default() {
                        placed.insert(at, extent);
                        at += extent.bytes;
                    }
                } else {
                    placed.take(address, bytes).into_iter().for_each(|extent| free.give(extent));
                }
                proof::every_byte_is_in_one_place(100, &free, &placed);
            }
        }
    }
}
