//! Chunks in order of address: sorted arrays of bounded length, themselves in order.
//!
//! Every event looks for a chunk and its neighbours, which are side by side here. Many look for the chunk of
//! the event before, which was found last.

use super::{AddressRange as _, SegmentBlock};

/// The maximum number of chunks in a run.
const RUN: usize = 32;

/// Chunks by address. They do not overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkMap {
    /// No run is empty, and none is longer than `RUN`.
    runs: Vec<Vec<SegmentBlock>>,
    /// The first address of each run.
    firsts: Vec<u64>,
    len: usize,
    /// Where a search ended last; perhaps no longer a place.
    last: ChunkPlace,
}

/// The place of a chunk, valid until a chunk is inserted or removed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkPlace {
    run: usize,
    at: usize,
}

impl ChunkMap {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns all chunks, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SegmentBlock> {
        self.runs.iter().flatten()
    }

    /// Returns the place of the last chunk that begins at `address` or below.
    #[inline]
    pub(super) fn last_up_to(&mut self, address: u64) -> Option<ChunkPlace> {
        if !self.is_last_up_to(self.last, address) {
            let run = self.firsts.partition_point(|&first| first <= address).checked_sub(1)?;
            let at = self.runs[run].partition_point(|chunk| chunk.address <= address).checked_sub(1)?;
            self.last = ChunkPlace { run, at };
        }
        Some(self.last)
    }

    #[inline]
    fn is_last_up_to(&self, ChunkPlace { run, at }: ChunkPlace, address: u64) -> bool {
        let Some(chunks) = self.runs.get(run).and_then(|run| run.get(at..)) else { return false };
        match *chunks {
            [chunk, next, ..] => chunk.address <= address && address < next.address,
            [chunk] => {
                chunk.address <= address && self.firsts.get(run + 1).is_none_or(|&next| address < next)
            }
            [] => false,
        }
    }

    /// Returns the place of the chunk that begins at `address`.
    #[inline]
    pub(super) fn find(&mut self, address: u64) -> Option<ChunkPlace> {
        self.last_up_to(address).filter(|&place| self.at(place).address == address)
    }

    #[inline]
    pub(super) fn at(&self, place: ChunkPlace) -> &SegmentBlock {
        &self.runs[place.run][place.at]
    }

    /// Returns the chunk at a place, whose address must not change.
    #[inline]
    pub(super) fn at_mut(&mut self, place: ChunkPlace) -> &mut SegmentBlock {
        &mut self.runs[place.run][place.at]
    }

    #[inline]
    pub(super) fn previous(&self, place: ChunkPlace) -> Option<ChunkPlace> {
        match place {
            ChunkPlace { run: 0, at: 0 } => None,
            ChunkPlace { run, at: 0 } => Some(ChunkPlace { run: run - 1, at: self.runs[run - 1].len() - 1 }),
            ChunkPlace { run, at } => Some(ChunkPlace { run, at: at - 1 }),
        }
    }

    #[inline]
    pub(super) fn next(&self, place: ChunkPlace) -> Option<ChunkPlace> {
        let ChunkPlace { run, at } = place;
        let next = if at + 1 < self.runs[run].len() { (run, at + 1) } else { (run + 1, 0) };
        (next.0 < self.runs.len()).then_some(ChunkPlace { run: next.0, at: next.1 })
    }

    pub(super) fn get(&mut self, address: u64) -> Option<&SegmentBlock> {
        self.find(address).map(|place| self.at(place))
    }

    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut SegmentBlock> {
        self.find(address).map(|place| self.at_mut(place))
    }

    /// Inserts a chunk, or replaces the one at its address.
    pub(super) fn insert(&mut self, chunk: SegmentBlock) {
        match self.last_up_to(chunk.address) {
            Some(place) if self.at(place).address == chunk.address => *self.at_mut(place) = chunk,
            Some(place) => self.insert_at(ChunkPlace { at: place.at + 1, ..place }, chunk),
            None => {
                if self.runs.is_empty() {
                    self.runs.push(Vec::new());
                    self.firsts.push(chunk.address);
                }
                self.firsts[0] = chunk.address;
                self.insert_at(ChunkPlace { run: 0, at: 0 }, chunk);
            }
        }
    }

    fn insert_at(&mut self, ChunkPlace { run, at }: ChunkPlace, chunk: SegmentBlock) {
        self.len += 1;
        let chunks = &mut self.runs[run];
        chunks.insert(at, chunk);
        if chunks.len() > RUN {
            let upper = chunks.split_off(RUN / 2);
            self.firsts.insert(run + 1, upper[0].address);
            self.runs.insert(run + 1, upper);
        }
    }

    pub(super) fn remove(&mut self, ChunkPlace { run, at }: ChunkPlace) {
        self.len -= 1;
        let chunks = &mut self.runs[run];
        chunks.remove(at);
        match chunks.first() {
            Some(first) => self.firsts[run] = first.address,
            None => {
                self.runs.remove(run);
                self.firsts.remove(run);
            }
        }
    }

    /// Removes the addresses from `address` up to `end`: see [`carve`](super::carve).
    pub(super) fn carve(&mut self, address: u64, end: u64) {
        while let Some(place) = end.checked_sub(1).and_then(|last| self.last_up_to(last)) {
            let chunk = *self.at(place);
            let stop = chunk.address.saturating_add(chunk.bytes);
            if stop <= address {
                break;
            }
            self.remove(place);
            if chunk.address < address {
                self.insert(chunk.part(chunk.address, address - chunk.address));
            }
            if stop > end {
                self.insert(chunk.part(end, stop - end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_a_tree(operations in prop::collection::vec((0..3, 0_u64..500), 0..2000)) {
            let (mut map, mut tree) = (ChunkMap::default(), BTreeMap::new());
            for (operation, address) in operations {
                match operation {
                    0 => {
                        if let Some(place) = map.find(address) {
                            map.remove(place);
                        }
                        tree.remove(&address);
                    }
                    _ => {
                        map.insert(SegmentBlock::free(address, 1));
                        tree.insert(address, SegmentBlock::free(address, 1));
                    }
                }
                prop_assert_eq!(map.get(address), tree.get(&address));
                let place = map.last_up_to(address);
                let mut downwards = tree.range(..=address).rev().map(|(_, chunk)| chunk);
                prop_assert_eq!(place.map(|place| map.at(place)), downwards.next());
                let previous = place.and_then(|place| map.previous(place));
                prop_assert_eq!(previous.map(|place| map.at(place)), downwards.next());
                if let Some(place) = place {
                    let next = map.next(place).map(|place| map.at(place));
                    prop_assert_eq!(next, tree.range(address + 1..).next().map(|(_, chunk)| chunk));
                }
            }
            prop_assert!(map.iter().eq(tree.values()) && map.len() == tree.len());
            let bounded = map.runs.iter().all(|run| (1..=RUN).contains(&run.len()));
            prop_assert!(bounded && map.runs.iter().map(|run| run[0].address).eq(map.firsts.iter().copied()));
        }
    }
}
