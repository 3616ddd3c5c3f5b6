//! Adding prefixes to the index: extension of leaves, new nodes, splits.

use super::evict::Candidate;
use super::node::{Boundary, Node, Tail};
use super::{PrefixIndex, ROOT, Rank};
use crate::blocks::Blocks;
use crate::chain::Prefix;
use crate::pages::NULL;
use crate::{KvEvent, RemovalReason};

impl PrefixIndex {
    /// Adds a prefix that ends here, with a boundary at its end. `block_at` returns the sequence's blocks of
    /// each run group, `tails` those of the other groups, which the boundary keeps. Returns `false` if the
    /// boundary was there already; `tails` are then not kept.
    pub(crate) fn register(
        &mut self,
        blocks: &mut Blocks,
        prefix: Prefix<'_>,
        tenant: u32,
        block_at: &dyn Fn(usize, u32) -> u32,
        tails: &[Tail],
        rank: Rank,
    ) -> bool {
        let Ok(end) = u32::try_from(prefix.hashes.len()) else { return false };
        if end == 0 {
            return false;
        }
        self.clock += 1;
        let (mut node, matched) = self.walk(prefix);
        if matched < end {
            if self.is_known(node, matched, prefix.hashes[matched as usize]) {
                // The hashes are equal and the tokens are not: there is no place for both.
                return false;
            }
            if matched < self.nodes[node as usize].end() {
                node = self.split(blocks, node, matched);
            }
            let at = &self.nodes[node as usize];
            node = if node != ROOT && at.children == 0 { node } else { self.add_child(blocks, node, tenant) };
            self.extend(blocks, node, prefix, block_at);
        }
        let is_new = self.add_boundary(blocks, node, end, tails, rank);
        if let Some(announcer) = self.events.as_mut().filter(|_| is_new) {
            for tail in tails {
                announcer.stored(prefix.hashes, tail.group as usize, tail.index, tail.block);
            }
        }
        is_new
    }

    /// Returns `true` if the unit behind the first `matched` ones of a path has this hash.
    fn is_known(&self, node: u32, matched: u32, hash: u128) -> bool {
        let at = &self.nodes[node as usize];
        let inside = at.hashes.get(matched.saturating_sub(at.start) as usize);
        inside == Some(&hash) || self.heads.contains_key(&hash)
    }

    /// Adds a node without units behind `parent`. Its first block is partial if the parent's last one is.
    fn add_child(&mut self, blocks: &mut Blocks, parent: u32, tenant: u32) -> u32 {
        if !self.has_tails {
            // The parent is no leaf any more: its children's boundaries stand for it.
            while let Some(&boundary) = self.nodes[parent as usize].boundaries.last() {
                self.remove_boundary(blocks, boundary);
            }
        }
        let start = self.nodes[parent as usize].end();
        let runs = vec![Vec::new(); self.runs.len()];
        let node = Node { parent, start, tick: self.clock, runs, tenant, ..Node::default() };
        self.nodes[parent as usize].children += 1;
        self.insert_node(node)
    }

    fn insert_node(&mut self, node: Node) -> u32 {
        if let Some(id) = self.unused_nodes.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(NULL)
    }

    /// Appends the units that a leaf lacks.
    fn extend(
        &mut self,
        blocks: &mut Blocks,
        id: u32,
        prefix: Prefix<'_>,
        block_at: &dyn Fn(usize, u32) -> u32,
    ) {
        let (unit, hashes) = (self.unit, prefix.hashes);
        let node = &mut self.nodes[id as usize];
        let from = node.end();
        let end = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        for (run, list) in self.runs.iter().zip(&mut node.runs) {
            let start = node.start * unit / run.span;
            let tokens = end * unit;
            let last = tokens.div_ceil(run.span);
            for index in from * unit / run.span..last {
                let block = block_at(run.group, index);
                let valid = (tokens - index * run.span).min(run.span);
                blocks.cache(run.group, block, valid);
                match list.get_mut((index - start) as usize) {
                    // The partial block at the end is replaced by one with more tokens.
                    Some(partial) => {
                        let former = std::mem::replace(partial, block);
                        blocks.uncache(run.group, former);
                        if let Some(announcer) = &mut self.events {
                            announcer.removed(blocks, run.group, former, RemovalReason::Extended);
                        }
                    }
                    None => list.push(block),
                }
            }
        }
        if node.hashes.is_empty() {
            self.heads.insert(hashes[from as usize], id);
        }
        if let Some(announcer) = &mut self.events {
            let parent = (from > 0).then(|| hashes[from as usize - 1]);
            announcer.push(KvEvent::UnitsStored { parent, hashes: hashes[from as usize..].into() });
            for run in &self.runs {
                for index in from * unit / run.span..(end * unit).div_ceil(run.span) {
                    announcer.stored(hashes, run.group, index, block_at(run.group, index));
                }
            }
        }
        node.hashes.extend_from_slice(&hashes[from as usize..]);
        if let Some(tokens) = prefix.tokens {
            node.tokens.extend_from_slice(&tokens[(from * unit) as usize..]);
        }
        self.units += (end - from) as usize;
        if let (false, Some(&boundary)) = (self.has_tails, node.boundaries.last()) {
            self.boundaries[boundary as usize].end = end;
        }
    }

    /// Splits a node before unit `at`, which is inside. Returns the node with the first part.
    fn split(&mut self, blocks: &mut Blocks, id: u32, at: u32) -> u32 {
        let unit = self.unit;
        let node = &mut self.nodes[id as usize];
        let (parent, start, tick) = (node.parent, node.start, node.tick);
        let rest = node.hashes.split_off((at - start) as usize);
        let first = std::mem::replace(&mut node.hashes, rest);
        let mut runs = Vec::with_capacity(self.runs.len());
        for (run, list) in self.runs.iter().zip(&mut node.runs) {
            let base = start * unit / run.span;
            let upper = ((at * unit).div_ceil(run.span) - base) as usize;
            let lower = (at * unit / run.span - base) as usize;
            let rest = list.split_off(lower);
            let mut first = std::mem::replace(list, rest);
            if lower < upper {
                // The block across the split belongs to both.
                let block = list[0];
                blocks.cache(run.group, block, 0);
                first.push(block);
            }
            runs.push(first);
        }
        let inside = node.boundaries.partition_point(|&id| self.boundaries[id as usize].end <= at);
        let rest = node.boundaries.split_off(inside);
        let boundaries = std::mem::replace(&mut node.boundaries, rest);
        let kept_tokens = ((at - start) * unit) as usize;
        let rest = node.tokens.split_off(kept_tokens.min(node.tokens.len()));
        let tokens = std::mem::replace(&mut node.tokens, rest);
        let (pins, rest) = std::mem::take(&mut node.pins).into_iter().partition(|&pin| pin <= at);
        node.pins = rest;
        node.start = at;
        let tenant = node.tenant;
        let (first_hash, rest_hash) = (first[0], node.hashes[0]);
        let upper =
            Node { parent, children: 1, start, tick, hashes: first, runs, boundaries, tokens, pins, tenant };
        let upper_id = self.insert_node(upper);
        self.nodes[id as usize].parent = upper_id;
        self.heads.insert(first_hash, upper_id);
        self.heads.insert(rest_hash, id);
        for index in 0..self.nodes[upper_id as usize].boundaries.len() {
            let boundary = self.nodes[upper_id as usize].boundaries[index];
            self.boundaries[boundary as usize].node = upper_id;
        }
        upper_id
    }

    /// Adds a boundary to a node, or raises the rank of the one that is there.
    fn add_boundary(&mut self, blocks: &mut Blocks, node: u32, end: u32, tails: &[Tail], rank: Rank) -> bool {
        let clock = self.clock;
        let at = &mut self.nodes[node as usize];
        at.tick = clock;
        let place = at.boundaries.partition_point(|&id| self.boundaries[id as usize].end < end);
        let known = at.boundaries.get(place).copied();
        if let Some(known) = known.filter(|&id| self.boundaries[id as usize].end == end || !self.has_tails) {
            let boundary = &mut self.boundaries[known as usize];
            let former = boundary.rank.expires;
            (boundary.tick, boundary.rank) = (clock, boundary.rank.merged(rank));
            if let Some(at) = boundary.rank.expires.filter(|_| boundary.rank.expires != former) {
                self.expire_at(known, at);
            }
            return false;
        }
        if !self.has_tails && (at.children > 0 || end < at.end()) {
            // Units inside a run and in front of children can be hit without a boundary of their own.
            return false;
        }
        self.insert_boundary(blocks, node, end, tails, rank, clock);
        true
    }

    pub(super) fn insert_boundary(
        &mut self,
        blocks: &mut Blocks,
        node: u32,
        end: u32,
        tails: &[Tail],
        rank: Rank,
        tick: u64,
    ) {
        let id = self.unused_boundaries.pop().unwrap_or_else(|| {
            self.boundaries.push(Boundary {
                node: NULL,
                end: 0,
                tails: Vec::new(),
                rank,
                tick: 0,
                generation: 0,
                is_parked: false,
            });
            u32::try_from(self.boundaries.len() - 1).unwrap_or(NULL)
        });
        let boundary = &mut self.boundaries[id as usize];
        (boundary.node, boundary.end, boundary.rank, boundary.tick) = (node, end, rank, tick);
        boundary.is_parked = false;
        boundary.tails.clear();
        boundary.tails.extend_from_slice(tails);
        for tail in tails {
            blocks.cache(tail.group as usize, tail.block, 0);
        }
        let candidate = Candidate::of(id, boundary);
        let list = &mut self.nodes[node as usize].boundaries;
        let place = list.partition_point(|&id| self.boundaries[id as usize].end < end);
        list.insert(place, id);
        self.candidates.push(self.nodes[node as usize].tenant, candidate);
        if let Some(at) = rank.expires {
            self.expire_at(id, at);
        }
        if self.has_tails {
            let hash = self.hash_before(node, end);
            if let (Some(announcer), Some(hash)) = (&mut self.events, hash) {
                announcer.push(KvEvent::BoundaryStored { hash });
            }
        }
    }

    /// Returns the hash of the unit that ends at `end`.
    pub(super) fn hash_before(&self, node: u32, end: u32) -> Option<u128> {
        let node = &self.nodes[node as usize];
        let last = end.checked_sub(1)?.checked_sub(node.start)?;
        node.hashes.get(last as usize).copied()
    }
}
