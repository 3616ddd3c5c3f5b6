//! Reading ahead of eviction.
//!
//! The records of a prefix that has not been used for long are in no cache of the processor, and each of them
//! says where the next one is: its first eviction would wait for all of them in turn. So each eviction that
//! shortens a prefix reads one record of the candidate after it, for which it need not wait.

use super::PrefixIndex;
use crate::blocks::Blocks;
use std::hint::black_box;

/// How far the candidate after the next one has been read.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    boundary: u32,
    depth: u32,
}

impl PrefixIndex {
    /// Reads one more record of the candidate after the next one.
    pub(super) fn read_ahead(&mut self, blocks: &Blocks, share: usize) {
        let Some(candidate) = self.candidates.second(share) else { return };
        let is_new = self.ahead.boundary != candidate.id;
        let depth = if is_new { 0 } else { self.ahead.depth.saturating_add(1) };
        self.ahead = ReadAhead { boundary: candidate.id, depth };
        black_box(self.record_at(blocks, candidate.id, depth));
    }

    /// Reads a word of the record at this depth behind a boundary. `None` behind the last one.
    fn record_at(&self, blocks: &Blocks, boundary: u32, depth: u32) -> Option<u32> {
        let boundary = &self.boundaries[boundary as usize];
        if depth == 0 {
            return Some(boundary.node);
        }
        let node = &self.nodes[boundary.node as usize];
        let (run, list) = self.runs.iter().zip(&node.runs).next()?;
        match depth {
            1 => Some(node.start),
            2 => Some(node.tenant),
            3 => node.hashes.last().map(|hash| u32::from(*hash == 0)),
            4 => u32::try_from(list.len()).ok(),
            5 => list.last().copied(),
            6 => Some(blocks.record(run.group, *list.last()?).pins),
            7 => blocks.pages_of(run.group, *list.last()?).first().copied(),
            8 => blocks.free_pages_beside(run.group, *list.last()?),
            9 => node.hashes.first().and_then(|hash| self.heads.get(hash)).copied(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PrefixIndex, Rank, RunGroup};
    use crate::blocks::{Blocks, TenantUse};
    use crate::chain::Prefix;
    use crate::{KvGeometry, LayerGroup};

    #[test]
    fn each_eviction_reads_one_record_more_of_the_next_prefix() {
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8).with_block_tokens(4)]).unwrap();
        let mut blocks = Blocks::new(&geometry, 64);
        blocks.tenants.push(TenantUse::UNLIMITED);
        let mut index = PrefixIndex::new(4, vec![RunGroup { group: 0, span: 4 }], false);
        for family in 0..3_u128 {
            let hashes: Vec<u128> = (1..=12).map(|at| family * 100 + at).collect();
            let ids: Vec<u32> = (0..12).map(|_| blocks.allocate(0, 0, 0, &mut [64]).unwrap()).collect();
            let prefix = Prefix { hashes: &hashes, tokens: None };
            index.register(&mut blocks, prefix, 0, &|_, at| ids[at as usize], &[], Rank::NORMAL);
            ids.iter().for_each(|&id| blocks.unpin(0, id));
        }
        for evicted in 1..=12 {
            assert!(index.evict(&mut blocks));
            // The last eviction of a prefix does not shorten it.
            let depth = (evicted - 1).min(10);
            assert_eq!((index.ahead.boundary, index.ahead.depth), (1, depth));
            assert_eq!(index.record_at(&blocks, 1, depth).is_some(), depth < 10, "{evicted}");
        }
        assert!(index.evict(&mut blocks));
        assert_eq!((index.ahead.boundary, index.ahead.depth), (2, 0));
        while index.evict(&mut blocks) {}
        assert_eq!(index.verify(&blocks), Ok(()));
    }
}
