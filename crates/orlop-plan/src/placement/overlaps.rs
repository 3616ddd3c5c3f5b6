//! Overlaps of the addresses of a period's blocks, in order of time: which block must be free before which
//! other.

use std::collections::BTreeMap;
use std::ops::Range;

/// Returns, for each block of a repeating period, the index of the next block whose addresses overlap with
/// its own: it must be free before that one is allocated. If no other does, that is the block itself, a
/// period later. Blocks are not empty.
///
/// ```
/// use orlop_plan::placement::next_overlaps;
///
/// assert_eq!(next_overlaps(&[0..4, 4..8, 2..6]), [2, 2, 0]);
/// ```
#[must_use]
pub fn next_overlaps<T: Copy + Ord>(blocks: &[Range<T>]) -> Vec<usize> {
    let mut next = vec![usize::MAX; blocks.len()];
    // Parts of the address space by their start: the end, and the last block there.
    let mut last: BTreeMap<T, (T, usize)> = BTreeMap::new();
    for (index, block) in (0..blocks.len()).chain(0..blocks.len()).map(|index| (index, &blocks[index])) {
        // The part that begins before the block and reaches into it, and those that begin in it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
        a.start < b.end && b.start < a.end
    }

    proptest! {
        /// Compared with a search through all pairs.
        #[test]
        fn the_next_overlap_is_the_first_in_time(
            blocks in prop::collection::vec((0usize..40, 1usize..20), 1..50),
        ) {
            let blocks: Vec<_> = blocks.into_iter().map(|(start, size)| start..start + size).collect();
            let count = blocks.len();
            for (index, next) in next_overlaps(&blocks).into_iter().enumerate() {
                let overlaps = |turns: &usize| overlap(&blocks[index], &blocks[(index + turns) % count]);
                let first = (1..=count).find(overlaps);
                prop_assert_eq!(Some(next), first.map(|turns| (index + turns) % count));
            }
        }
    }
}
