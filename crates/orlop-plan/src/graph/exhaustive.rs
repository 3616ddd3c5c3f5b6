//! The complete search for an order: dynamic programming over sets of executed nodes.
//!
//! All sets of `n` nodes that can be executed first are a level. Of each set the way with the lowest peak is
//! kept, as the set before and the node: what is live follows from the set alone. A state takes two bits per
//! node, so that a level takes a few megabytes.

use super::NodeId;
use super::order::{Search, Step, key};
use crate::normal::to_index;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The number of nodes that are measured before a search is given up, for each set that there may be at one
/// time, of a graph of up to 64 nodes. To look at 64 nodes for each word of a set counts as one more.
const STEPS: usize = 64;

/// The number of sets of one size that can be numbered.
const MAX_SETS: usize = 1 << 30;

/// A set of executed nodes.
#[derive(Clone, Copy)]
struct NodeSet {
    /// A number for the set.
    key: u128,
    peak: u64,
    live: u64,
    /// The set before, by its position in its level.
    before: usize,
    /// The node after that.
    node: usize,
}

/// The sets of one number of nodes.
struct Level {
    sets: Vec<NodeSet>,
    /// By set, and by 64 nodes: those that were executed.
    executed: Vec<u64>,
    /// The same: those that can be executed next.
    ready: Vec<u64>,
    words: usize,
}

impl Level {
    fn executed(&self, set: usize) -> &[u64] {
        &self.executed[set * self.words..][..self.words]
    }

    fn ready(&self, set: usize) -> impl Iterator<Item = usize> + '_ {
        let words = self.ready[set * self.words..][..self.words].iter().enumerate();
        words.flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| 64 * word + bit)
        })
    }
}

fn contains(bits: &[u64], node: usize) -> bool {
    bits[node / 64] >> (node % 64) & 1 != 0
}

/// A search through all sets.
pub(super) struct Exhaustive<'a> {
    search: &'a Search<'a>,
    /// By node: the nodes that it comes after.
    leaders: Vec<Vec<usize>>,
    /// By group: the nodes that read it.
    readers: Vec<Vec<usize>>,
}

impl<'a> Exhaustive<'a> {
    pub(super) fn new(search: &'a Search<'a>) -> Self {
        let mut leaders = vec![Vec::new(); search.followers.len()];
        for (node, followers) in search.followers.iter().enumerate() {
            followers.iter().for_each(|&follower| leaders[follower].push(node));
        }
        let mut readers = vec![Vec::new(); search.readers.len()];
        for (node, reads) in search.reads.iter().enumerate() {
            reads.iter().for_each(|&(group, _)| readers[group].push(node));
        }
        Self { search, leaders, readers }
    }

    /// Searches an order with a peak below `peak` through all sets of nodes. Returns `None` if there are more
    /// than `max_sets` of one size, or too many steps between them; otherwise the order with the smallest
    /// peak if it is below.
    pub(super) fn run(&self, peak: u64, max_sets: usize) -> Option<Option<Vec<NodeId>>> {
        let nodes = self.leaders.len();
        // Sets are numbered with 32 bits.
        let max_sets = max_sets.min(MAX_SETS);
        let mut steps_left = STEPS.saturating_mul(max_sets) / nodes.div_ceil(64).max(1);
        let mut level = self.first(peak);
        // Of each set before the last level, what is needed to go back.
        let mut ways: Vec<Vec<(u32, u32)>> = Vec::with_capacity(nodes);
        for _ in 0..nodes {
            level = self.next(&level, peak, max_sets, &mut steps_left)?;
            ways.push(level.sets.iter().map(|set| (to_index(set.before), to_index(set.node))).collect());
        }
        let lowest = (0..level.sets.len()).min_by_key(|&set| level.sets[set].peak);
        Some(lowest.map(|mut set| {
            let mut order: Vec<NodeId> = Vec::with_capacity(nodes);
            for way in ways.iter().rev() {
                let (before, node) = way[set];
                order.push(NodeId(node as usize));
                set = before as usize;
            }
            order.reverse();
            order
        }))
    }

    /// Returns the level of the empty set, without it if its peak is too high.
    fn first(&self, peak: u64) -> Level {
        let live = self.search.live_at_start();
        let words = self.leaders.len().div_ceil(64);
        let mut ready = vec![0; words];
        for node in (0..self.leaders.len()).filter(|&node| self.leaders[node].is_empty()) {
            ready[node / 64] |= 1 << (node % 64);
        }
        let set = NodeSet { key: 0, peak: live, live, before: 0, node: 0 };
        let sets = if live < peak { vec![set] } else { Vec::new() };
        Level { sets, executed: vec![0; words], ready, words }
    }

    fn next(&self, level: &Level, peak: u64, max_sets: usize, steps_left: &mut usize) -> Option<Level> {
        let mut sets: Vec<NodeSet> = Vec::new();
        let mut known: HashMap<u128, usize> = HashMap::new();
        for before in 0..level.sets.len() {
            for step in self.choices(level, before, steps_left)? {
                if step.peak >= peak {
                    continue;
                }
                let Step { node, peak, live } = step;
                let set = NodeSet { key: level.sets[before].key ^ key(node), peak, live, before, node };
                match known.entry(set.key) {
                    Entry::Vacant(entry) => {
                        entry.insert(sets.len());
                        sets.push(set);
                    }
                    Entry::Occupied(entry) => {
                        let other = &mut sets[*entry.get()];
                        if (set.peak, set.live) < (other.peak, other.live) {
                            *other = set;
                        }
                    }
                }
            }
            if sets.len() > max_sets {
                return None;
            }
        }
        let waiting = |set: &NodeSet| {
            self.search.followers[set.node].iter().map(|&node| self.leaders[node].len()).sum::<usize>()
        };
        let looked_at: usize = sets.iter().map(waiting).sum();
        *steps_left = steps_left.checked_sub(looked_at / (64 * level.words))?;
        Some(self.level(level, sets))
    }

    /// Returns the level of these sets, which follow those of another one.
    fn level(&self, before: &Level, sets: Vec<NodeSet>) -> Level {
        let words = before.words;
        let mut executed = Vec::with_capacity(sets.len() * words);
        let mut ready = Vec::with_capacity(sets.len() * words);
        for set in &sets {
            let start = executed.len();
            executed.extend_from_slice(before.executed(set.before));
            ready.extend_from_slice(&before.ready[set.before * words..][..words]);
            let (word, bit) = (start + set.node / 64, 1 << (set.node % 64));
            executed[word] |= bit;
            ready[word] &= !bit;
            for &follower in &self.search.followers[set.node] {
                if self.leaders[follower].iter().all(|&leader| contains(&executed[start..], leader)) {
                    ready[start + follower / 64] |= 1 << (follower % 64);
                }
            }
        }
        Level { sets, executed, ready, words }
    }

    /// Returns the nodes to try next: one if it costs nothing, otherwise all. `None` if no steps are left.
    fn choices(&self, level: &Level, set: usize, steps_left: &mut usize) -> Option<Vec<Step>> {
        let executed = level.executed(set);
        let NodeSet { peak, live, .. } = level.sets[set];
        let looked_at = Cell::new(0);
        // One more if the group is never freed.
        let readers = |group: usize| {
            let all = self.search.readers[group];
            looked_at.set(looked_at.get() + self.readers[group].len());
            let done = self.readers[group].iter().filter(|&&node| contains(executed, node)).count();
            all.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX))
        };
        let mut steps = Vec::new();
        for node in level.ready(set) {
            let step = self.search.measure((peak, live), &readers, node);
            *steps_left = steps_left.checked_sub(1 + looked_at.take() / (64 * level.words))?;
            if step.peak == peak && step.live <= live {
                return Some(vec![step]);
            }
            steps.push(step);
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, GraphBuilder, GraphError};

    /// A graph of nodes that all read one value.
    fn star(nodes: usize) -> Result<Graph, GraphError> {
        let mut graph = GraphBuilder::new();
        let center = graph.planned_input("center", 256);
        for _ in 0..nodes {
            let node = graph.node("ray", &[center])?;
            let end = graph.output(node, "end", 256)?;
            graph.keep(end)?;
        }
        Ok(graph.finish())
    }

    #[test]
    fn nodes_and_readers_that_are_looked_at_are_steps() {
        let graph = star(64).unwrap();
        let search = Search::new(&graph);
        let exhaustive = Exhaustive::new(&search);
        let level = exhaustive.first(u64::MAX);
        // Each node, and the readers of what it reads.
        for (steps, choices, left) in [(128, Some(64), 0), (127, None, 1), (130, Some(64), 2)] {
            let mut steps_left = steps;
            let found = exhaustive.choices(&level, 0, &mut steps_left);
            assert_eq!((found.map(|found| found.len()), steps_left), (choices, left));
        }
    }

    #[test]
    fn a_search_of_many_readers_is_given_up() {
        let graph = star(20_000).unwrap();
        assert!(Exhaustive::new(&Search::new(&graph)).run(u64::MAX, 1 << 14).is_none());
    }
}
