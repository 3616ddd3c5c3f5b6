//! Offsets for blocks whose lifetimes are known, in the holes that there are.
//!
//! Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
//! block first, each at the lowest address where it meets no placed block that lives at the same time. If that needs
//! more than there is, other orders are tried: by size times duration, by duration, and by beginning.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// A block of `size` bytes, which is not zero, that lives from the one moment until before the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) from: u32,
    pub(crate) until: u32,
    pub(crate) size: usize,
}

impl Life {
    fn duration(&self) -> usize {
        self.until.saturating_sub(self.from) as usize
    }
}

/// What is placed first has the largest.
type Key = fn(&Life) -> (usize, usize);

/// Addresses for all, inside the holes, which are in order of address and not adjacent; `None` where no order of
/// placing was found that leaves enough.
pub(crate) fn place(lives: &[Life], holes: &[Range<usize>]) -> Option<Vec<usize>> {
    places(lives, holes).next()
}

/// The same by each order of placing that leaves enough, to choose from.
pub(crate) fn places(lives: &[Life], holes: &[Range<usize>]) -> impl Iterator<Item = Vec<usize>> {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    let keys: [Key; 4] = [
        |life| (life.size, life.duration()),
        |life| (life.size.saturating_mul(life.duration()), life.size),
        |life| (life.duration(), life.size),
        |life| (usize::MAX - life.from as usize, life.size),
    ];
    keys.into_iter().filter_map(move |key| {
        order.sort_by_key(|&index| (Reverse(key(&lives[index])), index));
        in_order(lives, holes, &order)
    })
}

/// Something placed, or what lies between two holes.
struct Placed {
    from: u32,
    until: u32,
    start: usize,
    end: usize,
}

fn in_order(lives: &[Life], holes: &[Range<usize>], order: &[usize]) -> Option<Vec<usize>> {
    let (lowest, highest) = (holes.first()?.start, holes.last()?.end);
    let mut placed: Vec<Placed> = Vec::with_capacity(lives.len() + holes.len());
    for between in holes.windows(2) {
        placed.push(Placed { from: 0, until: u32::MAX, start: between[0].end, end: between[1].start });
    }
    let mut addresses = vec![0; lives.len()];
    for &index in order {
        let Life { from, until, size } = lives[index];
        let (mut start, mut position) = (lowest, placed.len());
        for (at, other) in placed.iter().enumerate() {
            if other.start >= start + size {
                // In order of address: nothing later begins before.
                position = at;
                break;
            }
            if other.from < until && from < other.until {
                start = start.max(other.end);
            }
        }
        if highest.checked_sub(start)? < size {
            return None;
        }
        // Behind all that begin before it.
        position -= placed[..position].iter().rev().take_while(|other| other.start > start).count();
        placed.insert(position, Placed { from, until, start, end: start + size });
        addresses[index] = start;
    }
    Some(addresses)
}

/// For each block, in a round that repeats, the next whose bytes meet its own: the one before which it must be free.
/// That is at the latest the block itself, a round later.
pub(crate) fn next_to_meet(blocks: &[Range<usize>]) -> Vec<usize> {
    let mut next = vec![usize::MAX; blocks.len()];
    // Who had the bytes last, by where they begin: with their end.
    let mut last: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (index, block) in (0..blocks.len()).chain(0..blocks.len()).map(|index| (index, &blocks[index])) {
        // The piece that begins before the block and reaches into it, and those that begin in it.
        let before = last.range(..block.start).next_back().map(|(&start, &(end, owner))| (start, end, owner));
        let mut met: Vec<_> =
            last.range(block.clone()).map(|(&start, &(end, owner))| (start, end, owner)).collect();
        met.extend(before.filter(|&(_, end, _)| end > block.start));
        for (start, end, owner) in met {
            if next[owner] == usize::MAX {
                next[owner] = index;
            }
            last.remove(&start);
            if start < block.start {
                last.insert(start, (block.start, owner));
            }
            if end > block.end {
                last.insert(block.end, (end, owner));
            }
        }
        last.insert(block.start, (block.end, index));
    }
    next
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
        a.start < b.end && b.start < a.end
    }

    fn lives() -> impl Strategy<Value = Vec<Life>> {
        let life = (0u32..100, 1u32..40, 1usize..50);
        let life = life.prop_map(|(from, lives, size)| Life { from, until: from + lives, size: size * 64 });
        prop::collection::vec(life, 1..60).prop_map(|mut lives| {
            lives.sort_by_key(|life| life.from);
            lives
        })
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
        fn what_lives_together_lies_apart(lives in lives(), holes in prop::collection::vec((1usize..40, 1usize..90), 1..8)) {
            let mut end = 0;
            let holes: Vec<_> = holes.into_iter().map(|(gap, size)| {
                let start = end + 64 * gap;
                end = start + 64 * size;
                start..end
            }).collect();
            if let Some(addresses) = place(&lives, &holes) {
                let blocks: Vec<_> = addresses.iter().zip(&lives).map(|(&at, life)| at..at + life.size).collect();
                for (i, (a, life)) in blocks.iter().zip(&lives).enumerate() {
                    prop_assert!(holes.iter().any(|hole| hole.start <= a.start && a.end <= hole.end));
                    for (b, other) in blocks[..i].iter().zip(&lives) {
                        let together = life.from < other.until && other.from < life.until;
                        prop_assert!(!(together && meet(a, b)));
                    }
                }
            } else {
                // One hole that holds all of them always does.
                let all = lives.iter().map(|life| life.size).sum();
                prop_assert!(place(&lives, std::slice::from_ref(&(0..all))).is_some());
                prop_assert!(holes.iter().all(|hole| hole.len() < all));
            }
        }

        /// Beside looking at all pairs.
        #[test]
        #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
        fn the_next_to_meet_is_the_first_in_turn(blocks in prop::collection::vec((0usize..40, 1usize..20), 1..50)) {
            let blocks: Vec<_> = blocks.into_iter().map(|(start, size)| start..start + size).collect();
            let count = blocks.len();
            for (index, met) in next_to_meet(&blocks).into_iter().enumerate() {
                let first = (1..=count).find(|turns| meet(&blocks[index], &blocks[(index + turns) % count]));
                prop_assert_eq!(Some(met), first.map(|turns| (index + turns) % count));
            }
        }
    }
}
