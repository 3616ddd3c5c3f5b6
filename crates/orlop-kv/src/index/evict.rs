//! Eviction: which boundary goes next, and what goes with it.
//!
//! Candidates are in a queue by rank, then by last use. A use changes only the boundary: its entry in the
//! queue is corrected when it comes up. A boundary whose blocks are in use is parked until a sequence ends.
//!
//! A boundary takes along the units behind the one before it, if nothing else follows them: no hit could
//! reach them any more.

use super::node::Boundary;
use super::rank::Rank;
use super::{PrefixIndex, PrefixMatch, ROOT};
use crate::blocks::Blocks;
use crate::{KvEvent, RemovalReason};

/// An entry in the queue of candidates. The smallest is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    class: u8,
    is_protected: bool,
    tick: u64,
    pub(super) id: u32,
    pub(super) generation: u32,
}

impl Candidate {
    pub(super) fn is_filler(self) -> bool {
        self.class == 0
    }

    pub(super) fn of(id: u32, boundary: &Boundary) -> Self {
        let Rank { class, is_protected, .. } = boundary.rank;
        Self { class, is_protected, tick: boundary.tick, id, generation: boundary.generation }
    }
}

#[cfg(test)]
impl Candidate {
    /// Returns a candidate that was used last at `tick`.
    pub(super) fn of_tick(tick: u32) -> Self {
        Self { class: 0, is_protected: false, tick: tick.into(), id: tick, generation: 0 }
    }
}

impl PrefixIndex {
    /// Evicts the next candidate that frees a page. If there is none, it evicts a parked one, whose blocks
    /// stay with their sequences. Returns `false` if the index is empty.
    pub(crate) fn evict(&mut self, blocks: &mut Blocks) -> bool {
        while let Some((share, candidate)) = self.candidates.next(blocks) {
            let Candidate { id, generation, .. } = candidate;
            let boundary = &self.boundaries[id as usize];
            if boundary.generation != generation || boundary.is_parked {
                self.candidates.pop(share);
                continue;
            }
            let current = Candidate::of(id, boundary);
            if current != candidate {
                self.candidates.replace(share, current);
                continue;
            }
            if self.is_pinned(id) {
                self.candidates.pop(share);
                self.boundaries[id as usize].is_parked = true;
                self.held.push((id, generation));
                continue;
            }
            if self.frees_pages(blocks, id) {
                // A boundary that only gets shorter remains the next candidate.
                if self.shorten(blocks, id) {
                    self.read_ahead(blocks, share);
                } else {
                    self.candidates.pop(share);
                    self.evict_boundary(blocks, id);
                }
                return true;
            }
            self.candidates.pop(share);
            self.boundaries[id as usize].is_parked = true;
            self.parked.push((id, generation));
        }
        while let Some((id, generation)) = self.parked.pop() {
            let boundary = &self.boundaries[id as usize];
            if boundary.is_parked && boundary.generation == generation {
                if self.is_pinned(id) {
                    self.held.push((id, generation));
                    continue;
                }
                self.evict_boundary(blocks, id);
                return true;
            }
        }
        false
    }

    /// Returns `true` if the next candidate is a filler, or evicting is not needed for one.
    pub(crate) fn has_filler(&self) -> bool {
        self.candidates.has_filler()
    }

    /// Makes parked boundaries candidates again: a sequence has ended.
    pub(crate) fn unpark(&mut self) {
        for (id, generation) in self.parked.drain(..) {
            let boundary = &mut self.boundaries[id as usize];
            if boundary.generation != generation || !std::mem::take(&mut boundary.is_parked) {
                continue;
            }
            let tenant = self.nodes[boundary.node as usize].tenant;
            self.candidates.push(tenant, Candidate::of(id, boundary));
        }
    }

    /// Evicts the boundaries whose hits have this block. Returns `false` if an entry of the block is left.
    pub(crate) fn forget(&mut self, blocks: &mut Blocks, group: usize, block: u32) -> bool {
        while blocks.record(group, block).cached > 0 {
            let nodes = self.heads.values().map(|&node| &self.nodes[node as usize]);
            let mut boundaries = nodes.flat_map(|node| node.boundaries.iter().copied());
            let is_evictable = |id: &u32| self.has_block(*id, group, block) && !self.is_pinned(*id);
            let Some(id) = boundaries.find(is_evictable) else { return false };
            let Boundary { generation, .. } = self.boundaries[id as usize];
            while blocks.record(group, block).cached > 0
                && self.boundaries[id as usize].generation == generation
                && !self.is_pinned(id)
            {
                self.evict_boundary(blocks, id);
            }
        }
        true
    }

    fn has_block(&self, boundary: u32, group: usize, block: u32) -> bool {
        let Boundary { node, end, .. } = self.boundaries[boundary as usize];
        let (hit, mut is_found) = (PrefixMatch { matched: end, hit: end, node, boundary }, false);
        self.blocks_of(&hit, |of, _, at| is_found |= (of, at) == (group, block));
        is_found
    }

    /// Removes everything. Blocks in use stay with their sequences.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.removal = RemovalReason::Discarded;
        self.nodes.iter_mut().for_each(|node| node.pins.clear());
        self.unpark();
        self.release_held();
        while self.evict(blocks) {}
        self.removal = RemovalReason::Evicted;
    }

    fn frees_pages(&self, blocks: &Blocks, id: u32) -> bool {
        let boundary = &self.boundaries[id as usize];
        let is_idle = |group: usize, block| blocks.record(group, block).pins == 0;
        if boundary.tails.iter().any(|tail| is_idle(tail.group as usize, tail.block)) {
            return true;
        }
        let node = &self.nodes[boundary.node as usize];
        let is_last = node.children == 0 && node.end() == boundary.end;
        let mut last = self.runs.iter().zip(&node.runs).filter_map(|(run, list)| Some((run, list.last()?)));
        is_last && last.any(|(run, &block)| is_idle(run.group, block))
    }

    /// Evicts a boundary that is no candidate. If it only gets shorter, it becomes one.
    fn evict_boundary(&mut self, blocks: &mut Blocks, id: u32) {
        let node = self.boundaries[id as usize].node;
        if self.shorten(blocks, id) {
            let boundary = &mut self.boundaries[id as usize];
            boundary.is_parked = false;
            let candidate = Candidate::of(id, boundary);
            self.candidates.push(self.nodes[node as usize].tenant, candidate);
        } else {
            self.evicted_boundaries += 1;
            self.remove_boundary(blocks, id);
            self.prune(blocks, node);
        }
    }

    /// Evicts the last block of a leaf whose boundary stands for all of its units. Returns `false`, and does
    /// nothing, if the boundary has to go with it.
    fn shorten(&mut self, blocks: &mut Blocks, id: u32) -> bool {
        let Boundary { node, end, .. } = self.boundaries[id as usize];
        let kept = self.units_kept(end);
        if self.has_tails || kept <= self.nodes[node as usize].start {
            return false;
        }
        self.evicted_boundaries += 1;
        self.boundaries[id as usize].end = kept;
        self.truncate(blocks, node, kept);
        true
    }

    /// Returns the units that are left when a leaf that ends here loses the last block of the group with the
    /// longest blocks.
    pub(super) fn units_kept(&self, end: u32) -> u32 {
        let span = self.runs.iter().map(|run| run.span).max().unwrap_or(1).max(self.unit);
        (end * self.unit - 1) / span * span / self.unit
    }

    pub(super) fn remove_boundary(&mut self, blocks: &mut Blocks, id: u32) {
        let Boundary { node, end, .. } = self.boundaries[id as usize];
        if self.has_tails {
            let hash = self.hash_before(node, end);
            if let (Some(announcer), Some(hash)) = (&mut self.events, hash) {
                announcer.push(KvEvent::BoundaryRemoved { hash, reason: self.removal });
            }
        }
        let boundary = &mut self.boundaries[id as usize];
        for tail in boundary.tails.drain(..) {
            blocks.uncache(tail.group as usize, tail.block);
            if let Some(announcer) = &mut self.events {
                announcer.removed(blocks, tail.group as usize, tail.block, self.removal);
            }
        }
        boundary.generation = boundary.generation.wrapping_add(1);
        boundary.is_parked = false;
        let list = &mut self.nodes[node as usize].boundaries;
        let place = list.partition_point(|&other| self.boundaries[other as usize].end < end);
        list.remove(place);
        self.unused_boundaries.push(id);
    }

    /// Removes what no hit can reach: units behind the last boundary of a leaf, and leaves without one.
    fn prune(&mut self, blocks: &mut Blocks, mut id: u32) {
        while id != ROOT && self.nodes[id as usize].children == 0 {
            let node = &self.nodes[id as usize];
            let last = node.boundaries.last().map(|&last| self.boundaries[last as usize].end);
            if let Some(last) = last {
                self.truncate(blocks, id, last);
                return;
            }
            let (start, parent) = (node.start, node.parent);
            self.truncate(blocks, id, start);
            self.unused_nodes.push(id);
            self.nodes[parent as usize].children -= 1;
            let above = &self.nodes[parent as usize];
            if !self.has_tails && parent != ROOT && above.children == 0 {
                let (end, tick) = (above.end(), above.tick);
                self.insert_boundary(blocks, parent, end, &[], Rank::NORMAL, tick);
                return;
            }
            id = parent;
        }
    }

    /// Removes the units of a node from `end` on.
    fn truncate(&mut self, blocks: &mut Blocks, id: u32, end: u32) {
        let node = &mut self.nodes[id as usize];
        if end >= node.end() {
            return;
        }
        let kept_units = (end - node.start) as usize;
        let removed = &node.hashes[kept_units..];
        self.units -= removed.len();
        self.evicted.insert(removed);
        if kept_units == 0 {
            self.heads.remove(&removed[0]);
        }
        let removed = self.events.is_some().then(|| Box::from(removed));
        node.hashes.truncate(kept_units);
        node.tokens.truncate(kept_units * self.unit as usize);
        for (run, list) in self.runs.iter().zip(&mut node.runs) {
            let kept = if end == node.start {
                0
            } else {
                (end * self.unit).div_ceil(run.span) - node.start * self.unit / run.span
            };
            for block in list.drain(kept as usize..) {
                blocks.uncache(run.group, block);
                if let Some(announcer) = &mut self.events {
                    announcer.removed(blocks, run.group, block, self.removal);
                }
            }
        }
        if let (Some(announcer), Some(hashes)) = (&mut self.events, removed) {
            announcer.push(KvEvent::UnitsRemoved { hashes, reason: self.removal });
        }
    }
}
