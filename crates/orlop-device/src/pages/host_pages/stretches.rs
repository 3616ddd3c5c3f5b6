//! Who has which stretch of the file: nobody, or one address.
//!
//! Plain bookkeeping, without a system under it: [`Free`] and [`Placed`] together say where every byte of the file is. A
//! stretch moves from one to the other by value, so that it is never in both.

use std::collections::BTreeMap;

/// A stretch of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// Stretches that are under no address: by offset, neighbours merged.
#[derive(Debug, Default)]
pub(super) struct Free {
    stretches: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Free {
    /// A file of so many bytes, all of it free.
    pub(super) fn new(bytes: usize) -> Self {
        let mut free = Self::default();
        free.give(Stretch { offset: 0, bytes });
        free
    }

    /// Stretches of so many bytes together; `None` if there are no more so many. One, if one is long enough: what is in a
    /// row in the file and in memory is one mapping, and a process may have only so many of those.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Vec<Stretch>> {
        if bytes > self.bytes {
            return None;
        }
        let mut taken = Vec::new();
        let mut missing = bytes;
        let whole = self.stretches.iter().find(|&(_, &long)| long >= bytes).map(|(&offset, _)| offset);
        while missing > 0 {
            let first = whole.or_else(|| self.stretches.keys().next().copied());
            let Some((offset, long)) = first.and_then(|offset| self.stretches.remove_entry(&offset)) else {
                // Never: together they are `bytes`.
                break;
            };
            let bytes = long.min(missing);
            if bytes < long {
                self.stretches.insert(offset + bytes, long - bytes);
            }
            taken.push(Stretch { offset, bytes });
            missing -= bytes;
        }
        self.bytes -= bytes;
        Some(taken)
    }

    /// Takes a stretch back.
    pub(super) fn give(&mut self, stretch: Stretch) {
        let Stretch { mut offset, bytes } = stretch;
        if bytes == 0 {
            return;
        }
        self.bytes += bytes;
        let mut long = bytes;
        if let Some(behind) = self.stretches.remove(&(offset + long)) {
            long += behind;
        }
        if let Some((&before, &its)) = self.stretches.range(..offset).next_back()
            && before + its == offset
        {
            (offset, long) = (before, its + long);
        }
        self.stretches.insert(offset, long);
    }
}

/// Stretches by the address that they are mapped at.
#[derive(Debug, Default)]
pub(super) struct Placed {
    stretches: BTreeMap<usize, Stretch>,
}

impl Placed {
    pub(super) fn insert(&mut self, address: usize, stretch: Stretch) {
        let before = self.stretches.insert(address, stretch);
        debug_assert!(before.is_none(), "two stretches at one address");
    }

    /// Whether anything is mapped among so many bytes from an address on.
    pub(super) fn is_any(&self, address: usize, bytes: usize) -> bool {
        let last = self.stretches.range(..address + bytes).next_back();
        last.is_some_and(|(&at, stretch)| at + stretch.bytes > address)
    }

    /// What is mapped among so many bytes from an address on, in order of address, and forgets it; what reaches out of it
    /// is cut.
    pub(super) fn take(&mut self, address: usize, bytes: usize) -> Vec<Stretch> {
        self.cut(address);
        self.cut(address + bytes);
        let inside: Vec<usize> = self.stretches.range(address..address + bytes).map(|(&at, _)| at).collect();
        inside.iter().filter_map(|at| self.stretches.remove(at)).collect()
    }

    /// The same, and remembers it.
    pub(super) fn inside(&mut self, address: usize, bytes: usize) -> impl Iterator<Item = Stretch> + '_ {
        self.cut(address);
        self.cut(address + bytes);
        self.stretches.range(address..address + bytes).map(|(_, &stretch)| stretch)
    }

    /// Makes a stretch that lies across an address two.
    fn cut(&mut self, address: usize) {
        if let Some((&at, stretch)) = self.stretches.range_mut(..address).next_back()
            && at + stretch.bytes > address
        {
            let front = address - at;
            let behind = Stretch { offset: stretch.offset + front, bytes: stretch.bytes - front };
            stretch.bytes = front;
            self.stretches.insert(address, behind);
        }
    }
}

#[cfg(test)]
pub(super) mod proof {
    use super::{Free, Placed, Stretch};

    /// Panics unless every byte of the file is free or under one address, and no address has two.
    pub(in super::super) fn every_byte_is_in_one_place(file: usize, free: &Free, placed: &Placed) {
        let loose = free.stretches.iter().map(|(&offset, &bytes)| Stretch { offset, bytes });
        let mut all: Vec<Stretch> = loose.chain(placed.stretches.values().copied()).collect();
        all.sort_unstable_by_key(|stretch| stretch.offset);
        let end = all.iter().fold(0, |end, stretch| {
            assert_eq!(end, stretch.offset, "a gap, or a stretch in two places");
            end + stretch.bytes
        });
        assert_eq!(end, file);
        assert_eq!(free.stretches.values().sum::<usize>(), free.bytes);
        let mut last = 0;
        for (&address, stretch) in &placed.stretches {
            assert!(last <= address, "two stretches at one address");
            last = address + stretch.bytes;
        }
    }

    /// Panics unless the system has the same mappings, however it divides them.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn the_system_agrees(mapped: Vec<(usize, Stretch)>, placed: &Placed) {
        let known = placed.stretches.iter().map(|(&address, &stretch)| (address, stretch)).collect();
        assert_eq!(joined(mapped), joined(known), "mappings of the system, and what is known of them");
    }

    #[cfg(target_os = "linux")]
    fn joined(stretches: Vec<(usize, Stretch)>) -> Vec<(usize, Stretch)> {
        let mut joined: Vec<(usize, Stretch)> = Vec::new();
        for (address, stretch) in stretches {
            match joined.last_mut() {
                Some((at, last))
                    if *at + last.bytes == address && last.offset + last.bytes == stretch.offset =>
                {
                    last.bytes += stretch.bytes;
                }
                _ => joined.push((address, stretch)),
            }
        }
        joined
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stretch(offset: usize, bytes: usize) -> Stretch {
        Stretch { offset, bytes }
    }

    #[test]
    fn one_stretch_is_preferred_and_several_serve() {
        let mut free = Free::new(10);
        let first = free.take(2).unwrap();
        let second = free.take(3).unwrap();
        assert_eq!((first[0], second[0]), (stretch(0, 2), stretch(2, 3)));
        free.give(first[0]);
        assert_eq!(free.take(4), Some(vec![stretch(5, 4)]), "the first that is long enough");
        assert_eq!(free.take(4), None);
        assert_eq!(free.take(3), Some(vec![stretch(0, 2), stretch(9, 1)]));
        assert_eq!(free.bytes, 0);
        free.give(second[0]);
        assert_eq!(free.bytes, 3);
    }

    #[test]
    fn what_reaches_out_is_cut() {
        let mut placed = Placed::default();
        placed.insert(100, stretch(0, 10));
        placed.insert(110, stretch(50, 10));
        assert!(placed.is_any(90, 11) && placed.is_any(119, 1));
        assert!(!placed.is_any(90, 10) && !placed.is_any(120, 5));
        assert_eq!(placed.take(104, 12), [stretch(4, 6), stretch(50, 6)]);
        assert_eq!(placed.take(0, 1000), [stretch(0, 4), stretch(56, 4)]);
    }

    proptest! {
        #[test]
        fn every_byte_stays_in_one_place(steps in prop::collection::vec((any::<bool>(), 0_usize..64, 1_usize..20), 0..60)) {
            let (mut free, mut placed) = (Free::new(100), Placed::default());
            for (maps, address, bytes) in steps {
                if maps && !placed.is_any(address, bytes) {
                    let mut at = address;
                    for stretch in free.take(bytes).unwrap_or_default() {
                        placed.insert(at, stretch);
                        at += stretch.bytes;
                    }
                } else {
                    placed.take(address, bytes).into_iter().for_each(|stretch| free.give(stretch));
                }
                proof::every_byte_is_in_one_place(100, &free, &placed);
            }
        }
    }
}
