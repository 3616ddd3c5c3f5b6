//! The buffers that are not placed yet, and the search for the best that fits into a valley.
//!
//! A tree over the spans in order of their first section. Each node has the smallest end and the best rank
//! below it. The spans that begin in the valley are a range of leaves; there, a search descends into a node
//! only if some span below ends in time and some span below is better than the best so far. The two need not
//! be the same span, so the worst case is linear; on real problems a search visits a few dozen nodes.

use crate::normal::SectionSpan;

/// The smallest end and the best (smallest) rank under a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnplacedNode {
    behind: u32,
    rank: u32,
}

/// The leaf of a placed span, or of none. No rank is that large.
const NONE: UnplacedNode = UnplacedNode { behind: u32::MAX, rank: u32::MAX };

impl UnplacedNode {
    fn both(self, other: Self) -> Self {
        Self { behind: self.behind.min(other.behind), rank: self.rank.min(other.rank) }
    }
}

/// The unplaced spans.
#[derive(Debug)]
pub(super) struct Unplaced {
    /// Node 1 is the root, the children of `n` are `2n` and `2n + 1`, the second half are the leaves.
    nodes: Vec<UnplacedNode>,
}

impl Unplaced {
    pub(super) fn new(spans: usize) -> Self {
        Self { nodes: vec![NONE; 2 * spans.next_power_of_two()] }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Inserts all spans with these ranks.
    pub(super) fn fill(&mut self, spans: &[SectionSpan], ranks: &[u32]) {
        let leaves = self.leaves();
        for ((leaf, span), &rank) in self.nodes[leaves..].iter_mut().zip(spans).zip(ranks) {
            *leaf = UnplacedNode { behind: span.behind, rank };
        }
        for node in (1..leaves).rev() {
            self.nodes[node] = self.nodes[2 * node].both(self.nodes[2 * node + 1]);
        }
    }

    pub(super) fn remove(&mut self, span: usize) {
        let mut node = self.leaves() + span;
        self.nodes[node] = NONE;
        while node > 1 {
            node /= 2;
            let both = self.nodes[2 * node].both(self.nodes[2 * node + 1]);
            if self.nodes[node] == both {
                break;
            }
            self.nodes[node] = both;
        }
    }

    /// Returns the span of the best rank among `spans` that ends at `behind` or before.
    pub(super) fn best(&self, spans: std::ops::Range<u32>, behind: u32) -> Option<usize> {
        let mut best = (u32::MAX, 0);
        let (mut low, mut high) = (self.leaves() + spans.start as usize, self.leaves() + spans.end as usize);
        // The leaves of the range are those below at most two nodes on each level.
        while low < high {
            if low % 2 == 1 {
                self.descend(low, behind, &mut best);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.descend(high, behind, &mut best);
            }
            low /= 2;
            high /= 2;
        }
        (best.0 != u32::MAX).then(|| best.1 - self.leaves())
    }

    /// Returns the first of `spans` that ends at `behind` or before.
    pub(super) fn first_inside(&self, spans: std::ops::Range<u32>, behind: u32) -> Option<usize> {
        let leaves = self.leaves();
        let (mut node, end) = (leaves + spans.start as usize, leaves + spans.end as usize);
        if node >= end {
            return None;
        }
        // Up and to the right, until a leaf below ends in time; then down to the first one.
        while self.nodes[node].behind > behind {
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < leaves {
            node *= 2;
            if self.nodes[node].behind > behind {
                node += 1;
            }
        }
        (node < end).then(|| node - leaves)
    }

    fn descend(&self, node: usize, behind: u32, best: &mut (u32, usize)) {
        let here = self.nodes[node];
        if here.behind > behind || here.rank >= best.0 {
            return;
        }
        if node >= self.leaves() {
            *best = (here.rank, node);
            return;
        }
        let (left, right) = (2 * node, 2 * node + 1);
        // A span found in the better half may make the other half unnecessary.
        let swap = self.nodes[right].rank < self.nodes[left].rank;
        let (near, far) = if swap { (right, left) } else { (left, right) };
        self.descend(near, behind, best);
        self.descend(far, behind, best);
    }
}
