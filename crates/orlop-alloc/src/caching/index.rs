//! The index of free chunks: a list for each class, and a bit for each list that is not empty. Finding,
//! adding and removing take a few instructions, however many chunks there are. (The bitmaps are those of
//! two-level segregated fit, Masmano et al. 2004. The classes are finer, and requests are rounded up to them
//! first, so that the search wastes nothing.)

use super::classes::{CLASSES, class_for, class_within};
use crate::bfc::bins::{Free, FreeIndex, first_one_from};
use orlop_core::Alignment;

/// The search looks at this many chunks of a list for the lowest address.
const LOOK: usize = 4;

const WORDS: usize = CLASSES.div_ceil(64);

/// No chunk.
const NONE: u32 = u32::MAX;

/// An entry of a list, at the index of its chunk.
#[derive(Debug, Clone, Copy)]
struct Node {
    size: usize,
    address: usize,
    previous: u32,
    next: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ClassIndex {
    heads: Box<[u32; CLASSES]>,
    filled: [u64; WORDS],
    nodes: Vec<Node>,
}

impl ClassIndex {
    /// Returns the first class from `class` on whose list is not empty.
    #[inline]
    fn filled_from(&self, class: usize) -> Option<usize> {
        first_one_from(&self.filled, class)
    }

    #[inline]
    fn unlink(&mut self, class: usize, chunk: u32) -> Free {
        let Node { size, address, previous, next } = self.nodes[chunk as usize];
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        } else {
            self.heads[class] = next;
            if next == NONE {
                self.filled[class / 64] &= !(1 << (class % 64));
            }
        }
        Free { size, address, chunk }
    }

    fn list(&self, class: usize) -> impl Iterator<Item = Free> + '_ {
        let mut next = self.heads[class];
        std::iter::from_fn(move || {
            let chunk = next;
            let node = self.nodes.get(chunk as usize).filter(|_| chunk != NONE)?;
            next = node.next;
            Some(Free { size: node.size, address: node.address, chunk })
        })
    }

    fn classes_from(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        let mut next = class;
        std::iter::from_fn(move || {
            let found = self.filled_from(next)?;
            next = found + 1;
            Some(found)
        })
    }
}

impl FreeIndex for ClassIndex {
    fn new(_: Alignment) -> Self {
        Self { heads: Box::new([NONE; CLASSES]), filled: [0; WORDS], nodes: Vec::new() }
    }

    #[inline]
    fn insert(&mut self, Free { size, address, chunk }: Free) {
        let class = class_within(size);
        let next = std::mem::replace(&mut self.heads[class], chunk);
        self.filled[class / 64] |= 1 << (class % 64);
        if next != NONE {
            self.nodes[next as usize].previous = chunk;
        }
        let node = Node { size, address, previous: NONE, next };
        let place = chunk as usize;
        match self.nodes.get_mut(place) {
            Some(known) => *known = node,
            None => self.nodes.resize(place + 1, node),
        }
    }

    #[inline]
    fn remove(&mut self, free: Free) -> bool {
        debug_assert!(self.nodes[free.chunk as usize].address == free.address);
        self.unlink(class_within(free.size), free.chunk);
        true
    }

    #[inline]
    fn take(&mut self, size: usize) -> Option<Free> {
        // The last list has chunks of all larger sizes.
        if size > super::classes::size_of_class(CLASSES - 1) {
            let found = self.at_least(size).next()?;
            return self.remove(found).then_some(found);
        }
        let class = self.filled_from(class_for(size))?;
        let mut best = self.heads[class];
        let mut next = self.nodes[best as usize].next;
        for _ in 1..LOOK {
            let Some(node) = self.nodes.get(next as usize) else { break };
            if node.address < self.nodes[best as usize].address {
                best = next;
            }
            next = node.next;
        }
        Some(self.unlink(class, best))
    }

    fn at_least(&self, size: usize) -> impl Iterator<Item = Free> + '_ {
        // The first list may have chunks that are too small.
        let lists = self.classes_from(class_within(size));
        lists.flat_map(|class| self.list(class)).filter(move |free| free.size >= size)
    }

    fn largest(&self) -> usize {
        let class = self.classes_from(0).last();
        class.and_then(|class| self.list(class).map(|free| free.size).max()).unwrap_or(0)
    }

    fn iter(&self) -> impl Iterator<Item = Free> + '_ {
        self.classes_from(0).flat_map(|class| self.list(class))
    }

    fn shrink(&mut self, chunks: usize) {
        self.nodes.truncate(chunks);
        self.nodes.shrink_to_fit();
    }

    fn bytes(&self) -> usize {
        size_of::<[u32; CLASSES]>() + self.nodes.capacity() * size_of::<Node>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::classes::{GRANULE, size_of_class};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn classes_hold_requests_and_little_more(log2 in 0u32..38, low in any::<usize>()) {
            let bytes = (1 << log2) | (low & ((1 << log2) - 1));
            let class = class_for(bytes);
            prop_assert!(size_of_class(class) >= bytes);
            prop_assert!(class == 0 || size_of_class(class - 1) < bytes);
            prop_assert!(size_of_class(class) <= bytes + bytes / 32 + 63);
            let within = class_within(bytes.max(64));
            prop_assert!(size_of_class(within) <= bytes.max(64));
            prop_assert!(within + 1 == CLASSES || size_of_class(within + 1) > bytes.max(64));
        }

        /// Against a plain list: a chunk that is taken fits, comes from the first class that has any, and is
        /// removed.
        #[test]
        #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
        fn finds_the_first_class_that_fits(
            operations in prop::collection::vec((any::<bool>(), 1usize..5000), 1..200),
        ) {
            let mut index = ClassIndex::new(GRANULE);
            let mut plain: Vec<Free> = Vec::new();
            for (chunk, (insert, granules)) in operations.into_iter().enumerate() {
                let size = granules * 64;
                if insert {
                    let free = Free { size, address: 64 * chunk, chunk: u32::try_from(chunk).unwrap() };
                    index.insert(free);
                    plain.push(free);
                } else {
                    let size = size_of_class(class_for(size));
                    let classes = plain.iter().map(|free| class_within(free.size));
                    let best = classes.filter(|&class| class >= class_for(size)).min();
                    let taken = index.take(size);
                    prop_assert_eq!(taken.map(|free| class_within(free.size)), best);
                    if let Some(taken) = taken {
                        prop_assert!(taken.size >= size);
                        plain.retain(|free| free.chunk != taken.chunk);
                    }
                }
                prop_assert_eq!(index.iter().count(), plain.len());
                prop_assert_eq!(index.largest(), plain.iter().map(|free| free.size).max().unwrap_or(0));
            }
        }
    }

    #[test]
    fn there_is_no_class_for_nothing_or_too_much() {
        assert!(class_for(0) >= CLASSES && class_for(usize::MAX) >= CLASSES);
        assert_eq!(class_for(size_of_class(CLASSES - 1)), CLASSES - 1);
        assert!(class_for(size_of_class(CLASSES - 1) + 1) >= CLASSES);
    }
}
