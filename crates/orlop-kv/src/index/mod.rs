//! The index of cached prefixes: a tree of runs.
//!
//! A *node* is a run of match units that follow each other: their hashes, and the blocks of the groups that
//! keep every token. Since a hash covers its whole prefix, one map from the first hash of a node finds it,
//! and a lookup bisects the rest of the run.
//!
//! A *boundary* is a position at which a hit can end: it has the blocks of the other groups, the tail of each
//! window and the saved states. A model that keeps every token in every group can be hit at every unit: its
//! leaves have one boundary, at the end, that stands for all.
//!
//! Invariants:
//! * a node has the run groups' blocks of all of its tokens: from the block that holds its first token to the
//!   block that holds its last one, which may be partial;
//! * a leaf ends with a boundary: nothing is cached that no hit can reach;
//! * a boundary is in the queue of candidates, or parked because its blocks are in use.

mod ahead;
mod announce;
mod evict;
mod node;
mod pins;
mod queue;
mod rank;
mod recent;
mod register;
mod shares;

use self::ahead::ReadAhead;
use self::announce::Announcer;
use self::evict::Candidate;
pub(crate) use self::node::Tail;
use self::node::{Boundary, Node, UnitHasher};
use self::rank::Expiry;
pub(crate) use self::rank::Rank;
pub(crate) use self::recent::RecentHashes;
use self::shares::Shares;

use crate::RemovalReason;
use crate::blocks::Blocks;
use crate::chain::Prefix;
use crate::pages::NULL;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

/// The node without units, which every path begins with.
const ROOT: u32 = 0;

/// Returns the number of units with which two runs begin alike. A hash covers its whole prefix, so units that
/// are equal follow equal ones, and the last of these is found by bisection.
fn equal_units(a: &[u128], b: &[u128]) -> usize {
    let (mut equal, mut end) = (0, a.len().min(b.len()));
    while equal < end {
        let middle = equal.midpoint(end);
        if a[middle] == b[middle] {
            equal = middle + 1;
        } else {
            end = middle;
        }
    }
    equal
}

/// A group that keeps every token: its index, and the tokens of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunGroup {
    pub(crate) group: usize,
    pub(crate) span: u32,
}

/// What a lookup found, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefixMatch {
    /// Units that the index knows.
    pub(crate) matched: u32,
    /// Units that all groups can serve.
    pub(crate) hit: u32,
    /// The node of the hit.
    node: u32,
    /// The boundary of the hit; [`NULL`] without other groups.
    boundary: u32,
}

impl PrefixMatch {
    pub(crate) const NONE: Self = Self { matched: 0, hit: 0, node: ROOT, boundary: NULL };
}

#[derive(Debug)]
pub(crate) struct PrefixIndex {
    /// Tokens of a unit.
    unit: u32,
    runs: Vec<RunGroup>,
    /// Whether there are groups besides those of the runs.
    has_tails: bool,
    nodes: Vec<Node>,
    unused_nodes: Vec<u32>,
    heads: HashMap<u128, u32, BuildHasherDefault<UnitHasher>>,
    boundaries: Vec<Boundary>,
    unused_boundaries: Vec<u32>,
    candidates: Shares,
    ahead: ReadAhead,
    /// Candidates that a pin of the user keeps, with their generations.
    held: Vec<(u32, u32)>,
    /// Boundaries whose blocks are in use, with their generations: those that were removed are still listed.
    parked: Vec<(u32, u32)>,
    expiries: BinaryHeap<Reverse<Expiry>>,
    clock: u64,
    /// Units in the tree.
    units: usize,
    pub(crate) evicted_boundaries: u64,
    /// Units that were evicted lately.
    evicted: RecentHashes,
    /// The reason of removals at present.
    removal: RemovalReason,
    /// Events, if they are wanted.
    events: Option<Box<Announcer>>,
}

impl PrefixIndex {
    pub(crate) fn new(unit: u32, runs: Vec<RunGroup>, has_tails: bool) -> Self {
        let root = Node { parent: NULL, ..Node::default() };
        Self {
            unit,
            runs,
            has_tails,
            nodes: vec![root],
            unused_nodes: Vec::new(),
            heads: HashMap::default(),
            boundaries: Vec::new(),
            unused_boundaries: Vec::new(),
            candidates: Shares::default(),
            ahead: ReadAhead::default(),
            held: Vec::new(),
            parked: Vec::new(),
            expiries: BinaryHeap::new(),
            clock: 0,
            units: 0,
            evicted_boundaries: 0,
            evicted: RecentHashes::default(),
            removal: RemovalReason::Evicted,
            events: None,
        }
    }

    /// Returns the deepest node on the path of a prefix, and the number of units on it. The path ends where
    /// tokens differ although their hashes are equal.
    fn walk(&self, prefix: Prefix<'_>) -> (u32, u32) {
        let (mut node, mut matched) = (ROOT, 0);
        while let Some(&next) = prefix.hashes.get(matched).and_then(|hash| self.heads.get(hash)) {
            let run = &self.nodes[next as usize];
            let mut equal = equal_units(&run.hashes, &prefix.hashes[matched..]);
            if let Some(tokens) = prefix.tokens {
                equal = equal.min(self.equal_tokens(&run.tokens, &tokens[matched * self.unit as usize..]));
            }
            if equal == 0 {
                break;
            }
            node = next;
            matched += equal;
            if equal < run.hashes.len() {
                break;
            }
        }
        (node, u32::try_from(matched).unwrap_or(u32::MAX))
    }

    /// Returns the number of units with which two runs of tokens begin alike.
    fn equal_tokens(&self, a: &[u32], b: &[u32]) -> usize {
        let both = a.len().min(b.len());
        let equal =
            if a[..both] == b[..both] { both } else { a.iter().zip(b).take_while(|(a, b)| a == b).count() };
        equal / self.unit as usize
    }

    /// Returns the number of units of a prefix that the index knows.
    pub(crate) fn find_units(&self, prefix: Prefix<'_>) -> u32 {
        self.walk(prefix).1
    }

    /// Looks for the longest prefix of at most `limit` units that every group can serve. It changes nothing,
    /// so that a probe keeps nothing in the cache.
    pub(crate) fn find(&self, prefix: Prefix<'_>, limit: u32) -> PrefixMatch {
        let (mut node, matched) = self.walk(prefix);
        let limit = limit.min(matched);
        loop {
            let at = &self.nodes[node as usize];
            if self.has_tails {
                let below = at.boundaries.partition_point(|&id| self.boundaries[id as usize].end <= limit);
                if let Some(&boundary) = below.checked_sub(1).and_then(|last| at.boundaries.get(last)) {
                    let hit = self.boundaries[boundary as usize].end;
                    return PrefixMatch { matched, hit, node, boundary };
                }
            } else if at.start < limit {
                return PrefixMatch { matched, hit: limit, node, boundary: NULL };
            }
            if node == ROOT {
                return PrefixMatch { matched, ..PrefixMatch::NONE };
            }
            node = at.parent;
        }
    }

    /// Gives the blocks of a hit to `take`, in runs: the group, the index of the first block in the sequence,
    /// and blocks that follow each other. An index may come twice: the later one counts.
    pub(crate) fn runs_of(&self, hit: &PrefixMatch, mut take: impl FnMut(usize, u32, &[u32])) {
        let mut path = Vec::new();
        let mut node = hit.node;
        while node != ROOT {
            path.push(node);
            node = self.nodes[node as usize].parent;
        }
        for &node in path.iter().rev() {
            let node = &self.nodes[node as usize];
            let end = node.end().min(hit.hit);
            for (run, blocks) in self.runs.iter().zip(&node.runs) {
                let first = node.start * self.unit / run.span;
                let count = (end * self.unit).div_ceil(run.span) - first;
                take(run.group, first, &blocks[..blocks.len().min(count as usize)]);
            }
        }
        if hit.boundary != NULL {
            for tail in &self.boundaries[hit.boundary as usize].tails {
                take(tail.group as usize, tail.index, std::slice::from_ref(&tail.block));
            }
        }
    }

    /// As [`Self::runs_of`], one block at a time.
    pub(crate) fn blocks_of(&self, hit: &PrefixMatch, mut take: impl FnMut(usize, u32, u32)) {
        self.runs_of(hit, |group, first, blocks| {
            (first..).zip(blocks).for_each(|(index, &block)| take(group, index, block));
        });
    }

    /// Gives the blocks of the groups that keep every token to `take`, as far as a prefix is known.
    pub(crate) fn run_blocks(&self, prefix: Prefix<'_>, take: impl FnMut(usize, u32, u32)) {
        let (node, matched) = self.walk(prefix);
        self.blocks_of(&PrefixMatch { matched, hit: matched, node, boundary: NULL }, take);
    }

    /// Returns `true` if the unit was in the index, as far as that is remembered.
    pub(crate) fn was_evicted(&self, hash: u128) -> bool {
        self.evicted.contains(hash)
    }

    /// Records the use of a hit.
    pub(crate) fn touch(&mut self, hit: &PrefixMatch) {
        self.clock += 1;
        let clock = self.clock;
        let mut node = hit.node;
        if hit.boundary != NULL {
            self.boundaries[hit.boundary as usize].hit(clock);
        }
        while node != ROOT {
            let at = &mut self.nodes[node as usize];
            at.tick = clock;
            if !self.has_tails {
                for &boundary in &at.boundaries {
                    self.boundaries[boundary as usize].hit(clock);
                }
            }
            node = at.parent;
        }
    }

    /// Returns the tenants of the nodes.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = u32> {
        self.heads.values().map(|&node| self.nodes[node as usize].tenant)
    }

    /// Returns the number of nodes, boundaries and units.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let nodes = self.nodes.len() - self.unused_nodes.len() - 1;
        (nodes, self.boundaries.len() - self.unused_boundaries.len(), self.units)
    }

    /// Returns the bytes of metadata.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let runs = |node: &Node| node.runs.iter().map(|run| run.capacity() * 4).sum::<usize>();
        let nodes = self.nodes.iter().map(|node| {
            let words = node.boundaries.capacity() + node.tokens.capacity() + node.pins.capacity();
            size_of::<Node>() + node.hashes.capacity() * 16 + runs(node) + words * 4
        });
        let boundaries = self
            .boundaries
            .iter()
            .map(|boundary| size_of::<Boundary>() + boundary.tails.capacity() * size_of::<Tail>());
        let candidates = self.candidates.len() * size_of::<Candidate>();
        nodes.sum::<usize>() + boundaries.sum::<usize>() + candidates + self.heads.capacity() * 32
    }

    /// Checks the invariants. Returns the first violation.
    pub(crate) fn verify(&self, blocks: &Blocks) -> Result<(), &'static str> {
        let mut cached: HashMap<(usize, u32), u32> = HashMap::new();
        let mut units = 0;
        let mut children = vec![0; self.nodes.len()];
        for &node in self.heads.values() {
            children[self.nodes[node as usize].parent as usize] += 1;
        }
        for (hash, &id) in &self.heads {
            let node = &self.nodes[id as usize];
            if node.hashes.first() != Some(hash) || node.children != children[id as usize] {
                return Err("a node's first hash or its children");
            }
            if node.parent != ROOT && self.nodes[node.parent as usize].end() != node.start {
                return Err("a node does not begin where its parent ends");
            }
            units += node.hashes.len();
            for (run, list) in self.runs.iter().zip(&node.runs) {
                let first = node.start * self.unit / run.span;
                let count = (node.end() * self.unit).div_ceil(run.span) - first;
                if list.len() != count as usize {
                    return Err("the blocks of a run");
                }
                for &block in list {
                    *cached.entry((run.group, block)).or_default() += 1;
                }
            }
            let mut ends = node.boundaries.iter().map(|&id| self.boundaries[id as usize].end);
            if !ends.clone().is_sorted_by(|a, b| a < b) || ends.clone().any(|end| end <= node.start) {
                return Err("the boundaries of a node");
            }
            if node.children == 0 && ends.next_back() != Some(node.end()) {
                return Err("a leaf without a boundary at its end: no hit can reach it");
            }
            for &boundary in &node.boundaries {
                for tail in &self.boundaries[boundary as usize].tails {
                    *cached.entry((tail.group as usize, tail.block)).or_default() += 1;
                }
            }
        }
        if units != self.units {
            return Err("the number of units");
        }
        for group in 0..blocks.group_count() {
            for (block, record) in blocks.allocated(group) {
                if record.cached != cached.remove(&(group, block)).unwrap_or(0) {
                    return Err("the index's entries of a block");
                }
            }
        }
        if cached.is_empty() { Ok(()) } else { Err("the index has a free block") }
    }
}

#[cfg(test)]
mod tests {
    use super::{Prefix, PrefixIndex, Rank, RunGroup, equal_units};
    use crate::blocks::{Blocks, TenantUse};
    use crate::{KvGeometry, LayerGroup};

    /// Different tokens with equal hashes: an index that compares tokens matches only those it has, and keeps
    /// no second chain under the same hashes.
    #[test]
    fn a_collision_of_hashes_is_not_a_hit() {
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8).with_block_tokens(4)]).unwrap();
        let mut blocks = Blocks::new(&geometry, 8);
        blocks.tenants.push(TenantUse::UNLIMITED);
        let table: Vec<u32> = (0..4).map(|_| blocks.allocate(0, 0, 0, &mut [8]).unwrap()).collect();
        let mut index = PrefixIndex::new(4, vec![RunGroup { group: 0, span: 4 }], false);
        let tokens: Vec<u32> = (0..16).collect();
        let mut others = tokens.clone();
        others[9] = 100;
        let rank = Rank { class: 1, is_protected: false, expires: None, normal: 1, protects: false };
        let block_at = |_, at: u32| table[at as usize];
        fn prefix<'a>(tokens: &'a [u32]) -> Prefix<'a> {
            Prefix { hashes: &[1, 2, 3, 4], tokens: Some(tokens) }
        }
        assert!(index.register(&mut blocks, prefix(&tokens), 0, &block_at, &[], rank));
        assert_eq!(index.find(prefix(&tokens), 4).hit, 4);
        assert_eq!(index.find(prefix(&others), 4).hit, 2, "the third unit differs");
        assert!(!index.register(&mut blocks, prefix(&others), 0, &block_at, &[], rank));
        others[0] = 100;
        assert_eq!(index.find(prefix(&others), 4).hit, 0);
        assert!(!index.register(&mut blocks, prefix(&others), 0, &block_at, &[], rank));
        assert_eq!((index.find(prefix(&tokens), 4).hit, index.verify(&blocks)), (4, Ok(())));
    }

    #[test]
    fn runs_are_compared_by_their_ends() {
        for len in 0..9_u128 {
            for equal in 0..=len {
                let a: Vec<u128> = (0..len).collect();
                let b: Vec<u128> = (0..len + 3).map(|at| if at < equal { at } else { at + 100 }).collect();
                assert_eq!((equal_units(&a, &b), equal_units(&b, &a)), (equal as usize, equal as usize));
            }
        }
    }
}
