//! [`MinPeak`]: orders of a graph's nodes with a small peak of live bytes.
//!
//! To find the smallest peak is NP-complete. Here a beam search executes one node after the other and keeps
//! the few states that have the smallest peak so far. States in which the same nodes were executed hold the
//! same bytes, so only the best of them is kept. A node that needs no more than the peak so far, and that
//! leaves no more bytes than before, is executed at once: no order is better without it.
//!
//! A second search ([`exhaustive`](super::exhaustive)) keeps all sets of nodes whose peak is smaller than
//! that of the order found. If it ends before it has too many, no order has a smaller peak. Concatenations
//! and splits count as copies.

use super::exhaustive::Exhaustive;
use super::{Graph, NodeId, Source, ValueId, rounded};
use orlop_core::{Alignment, SplitMix64};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Searches an order with a small peak.
///
/// ```
/// use orlop_plan::{GraphBuilder, MinPeak};
///
/// // Two branches with a large value each: one branch should end before the other begins.
/// let mut graph = GraphBuilder::new();
/// let input = graph.input("input", 8);
/// let mut expand = |graph: &mut GraphBuilder, name| {
///     let node = graph.node(name, &[input])?;
///     graph.output(node, name, 1 << 20)
/// };
/// let (left, right) = (expand(&mut graph, "left")?, expand(&mut graph, "right")?);
/// for large in [left, right] {
///     let node = graph.node("reduce", &[large])?;
///     let small = graph.output(node, "small", 256)?;
///     graph.keep(small)?;
/// }
/// let graph = graph.finish();
/// let peak = |order: &[_]| Ok::<_, orlop_plan::GraphError>(graph.lifetimes(order)?.problem().lower_bound());
/// assert_eq!(peak(&graph.given_order())?, (2 << 20) + 256);
/// assert_eq!(peak(&MinPeak::new().order(&graph))?, (1 << 20) + 2 * 256);
/// # Ok::<(), orlop_plan::GraphError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinPeak {
    width: usize,
}

impl Default for MinPeak {
    fn default() -> Self {
        Self { width: 32 }
    }
}

impl MinPeak {
    /// Creates a search that keeps 32 states.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of states that are kept after each step, at least one. Time and memory are in
    /// proportion to it; all sets of nodes are searched if at each time there are at most 512 times as many:
    /// 32 states are enough for any 16 nodes that can be executed in any order, 512 for 20 and 8,192 for 24.
    /// For graphs of more than about 8,000 nodes there are fewer: copying a state takes time in proportion to
    /// the graph. Where hundreds of nodes are ready at one time, only those that became ready last are tried,
    /// the fewer the more nodes there are.
    #[must_use]
    pub fn width(self, states: usize) -> Self {
        Self { width: states.max(1) }
    }

    /// Returns the order with the smallest [lower bound](crate::Problem::lower_bound) that the search found.
    /// It is the given order unless another one is better.
    #[must_use]
    pub fn order(self, graph: &Graph) -> Vec<NodeId> {
        self.search(graph).order
    }

    /// Returns the order as [`order`](Self::order) does, and whether all orders were searched.
    ///
    /// ```
    /// use orlop_plan::{GraphBuilder, MinPeak};
    ///
    /// let mut graph = GraphBuilder::new();
    /// let input = graph.input("input", 8);
    /// for name in ["left", "right"] {
    ///     let node = graph.node(name, &[input])?;
    ///     graph.output(node, name, 256)?;
    /// }
    /// assert!(MinPeak::new().search(&graph.finish()).is_exact);
    /// # Ok::<(), orlop_plan::GraphError>(())
    /// ```
    #[must_use]
    pub fn search(self, graph: &Graph) -> FoundOrder {
        let given = graph.given_order();
        let search = Search::new(graph);
        let found = search.run(self.width);
        let peak = |order: &[NodeId]| {
            graph.lifetimes(order).map_or(u64::MAX, |lifetimes| lifetimes.problem().lower_bound())
        };
        let known = search.peak_of(&found.order).min(search.peak_of(&given));
        let exact = Exhaustive::new(&search).run(known, SETS.saturating_mul(self.width));
        let lowest = exact.as_ref().and_then(Option::as_ref).unwrap_or(&found.order);
        let order = if peak(lowest) < peak(&given) { lowest.clone() } else { given };
        FoundOrder { order, is_exact: exact.is_some() }
    }
}

/// An order that [`MinPeak`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundOrder {
    /// The order.
    pub order: Vec<NodeId>,
    /// Whether no order has a smaller peak of live bytes, each value's rounded up to its alignment, and with
    /// those of parts ([`GraphBuilder::part`](crate::GraphBuilder::part)) apart from their wholes.
    pub is_exact: bool,
}

/// The number of sets of nodes at one time up to which all of them are searched, for each state of the beam.
const SETS: usize = 512;

/// The numbers of values that a search may copy, roughly.
const MAX_COPIED: usize = 1 << 31;

/// The nodes that a search may measure, roughly.
const MAX_MEASURED: usize = 1 << 22;

/// What the search knows about the graph. A group is a value that is no view, with its views.
pub(super) struct Search<'a> {
    graph: &'a Graph,
    /// The base of each value.
    base: Vec<usize>,
    /// The bytes of each value, rounded up to its alignment.
    sizes: Vec<u64>,
    /// By node: the groups that it reads, each with the number of its values that are read.
    pub(super) reads: Vec<Vec<(usize, u32)>>,
    /// By node: the groups that it writes.
    writes: Vec<Vec<usize>>,
    /// By group: the number of nodes that read it. One more if it is never freed.
    pub(super) readers: Vec<u32>,
    /// By node: the number of nodes that it comes after.
    waits_for: Vec<u32>,
    /// By node: the nodes that come after it.
    pub(super) followers: Vec<Vec<usize>>,
}

/// A state of the search: the nodes that were executed, and what is live.
#[derive(Clone)]
struct State {
    /// A number for the set of executed nodes.
    set: u128,
    peak: u64,
    live: u64,
    /// By group: the nodes that will still read it.
    readers: Vec<u32>,
    waits_for: Vec<u32>,
    ready: Vec<usize>,
    order: Vec<NodeId>,
}

/// What executing a node does to a state.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) node: usize,
    pub(super) peak: u64,
    pub(super) live: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        let base: Vec<usize> = (0..graph.values.len()).map(|value| graph.base(ValueId(value)).0).collect();
        let nodes = graph.nodes.len();
        let (mut reads, mut writes) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        let (mut waits_for, mut followers) = (vec![0; nodes], vec![Vec::new(); nodes]);
        let mut readers = vec![0; base.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            let of: &mut Vec<(usize, u32)> = &mut reads[index];
            for input in &node.inputs {
                let group = base[input.0];
                match of.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, values)) => *values += 1,
                    None => of.push((group, 1)),
                }
                if let Some(from) = graph.producer(*input)
                    && followers[from.0].last() != Some(&index)
                {
                    followers[from.0].push(index);
                    waits_for[index] += 1;
                }
            }
            of.iter().for_each(|&(group, _)| readers[group] += 1);
            let own = node.outputs.iter().map(|output| output.0).filter(|&output| base[output] == output);
            writes[index] = own.collect();
        }
        for (value, of) in graph.values.iter().zip(&base) {
            let stays = match graph.values[*of].source {
                Source::Caller => true,
                Source::PlannedInput => readers[*of] == 0,
                _ => false,
            };
            if value.is_kept || stays {
                readers[*of] = u32::MAX / 2;
            }
        }
        let sizes = graph.values.iter().map(|value| rounded(value.size, value.alignment)).collect();
        Self { graph, base, sizes, reads, writes, readers, waits_for, followers }
    }

    fn run(&self, width: usize) -> State {
        // A state is as large as the graph.
        let size = self.base.len().saturating_mul(self.graph.nodes.len()).max(1);
        let width = width.min(MAX_COPIED / size).max(1);
        let steps = self.graph.nodes.len().saturating_mul(width).max(1);
        let tried = (MAX_MEASURED / steps).max(1);
        let mut states = vec![self.start()];
        for _ in 0..self.graph.nodes.len() {
            let mut steps = self.steps(&states, tried);
            // Of equal ones the first: the search is deterministic.
            steps.sort_by_key(|(step, _)| (step.peak, step.live));
            steps.truncate(width);
            states = self.execute_all(states, &steps);
        }
        states.swap_remove(0)
    }

    /// Returns the peak of an order.
    fn peak_of(&self, order: &[NodeId]) -> u64 {
        let execute = |state: State, node: &NodeId| {
            let step = self.measure_in(&state, node.0);
            self.execute(state, step)
        };
        order.iter().fold(self.start(), execute).peak
    }

    /// Returns the steps to try next, each with its state: of each set of nodes the best way to it.
    fn steps(&self, states: &[State], tried: usize) -> Vec<(Step, usize)> {
        let mut steps: Vec<(Step, usize)> = Vec::new();
        let mut best: HashMap<u128, usize> = HashMap::new();
        for (from, state) in states.iter().enumerate() {
            for step in self.choices(state, tried) {
                match best.entry(state.set ^ key(step.node)) {
                    Entry::Vacant(entry) => {
                        entry.insert(steps.len());
                        steps.push((step, from));
                    }
                    Entry::Occupied(entry) => {
                        let known = &mut steps[*entry.get()];
                        if (step.peak, step.live) < (known.0.peak, known.0.live) {
                            *known = (step, from);
                        }
                    }
                }
            }
        }
        steps
    }

    /// Executes each step in the state that it belongs to. The last step of a state takes it.
    fn execute_all(&self, states: Vec<State>, steps: &[(Step, usize)]) -> Vec<State> {
        let mut states: Vec<Option<State>> = states.into_iter().map(Some).collect();
        let mut last = vec![0; states.len()];
        for (number, (_, from)) in steps.iter().enumerate() {
            last[*from] = number;
        }
        let execute = |(number, &(step, from)): (usize, &(Step, usize))| {
            let state = if last[from] == number { states[from].take() } else { states[from].clone() };
            state.map(|state| self.execute(state, step))
        };
        steps.iter().enumerate().filter_map(execute).collect()
    }

    /// Returns the bytes that are live before the first node.
    pub(super) fn live_at_start(&self) -> u64 {
        let planned = self.graph.each_value(|source| matches!(source, Source::PlannedInput));
        planned.fold(0, |live: u64, (value, _)| live.saturating_add(self.sizes[value.0]))
    }

    fn start(&self) -> State {
        let live = self.live_at_start();
        let ready = (0..self.waits_for.len()).filter(|&node| self.waits_for[node] == 0).collect();
        State {
            set: 0,
            peak: live,
            live,
            readers: self.readers.clone(),
            waits_for: self.waits_for.clone(),
            ready,
            order: Vec::with_capacity(self.waits_for.len()),
        }
    }

    /// Returns the nodes to try next: one if it costs nothing, otherwise the last `tried` that are ready.
    fn choices(&self, state: &State, tried: usize) -> Vec<Step> {
        let ready = &state.ready[state.ready.len().saturating_sub(tried)..];
        let mut steps = Vec::with_capacity(ready.len());
        for &node in ready {
            let step = self.measure_in(state, node);
            if step.peak == state.peak && step.live <= state.live {
                return vec![step];
            }
            steps.push(step);
        }
        steps
    }

    fn measure_in(&self, state: &State, node: usize) -> Step {
        self.measure((state.peak, state.live), &|group| state.readers[group], node)
    }

    /// Computes what a node would do. `readers` says how many nodes will still read a group.
    pub(super) fn measure(
        &self,
        (peak, live): (u64, u64),
        readers: &impl Fn(usize) -> u32,
        node: usize,
    ) -> Step {
        let (mut during, mut freed) = (live, 0_u64);
        let mut taken: Vec<usize> = Vec::new();
        for &output in &self.writes[node] {
            match self.overwritten(readers, node, output, &taken) {
                Some(input) => taken.push(input),
                None => during = during.saturating_add(self.sizes[output]),
            }
            if readers(output) == 0 {
                freed = freed.saturating_add(self.sizes[output]);
            }
        }
        for &(group, _) in &self.reads[node] {
            if readers(group) == 1 && !taken.contains(&group) {
                freed = freed.saturating_add(self.sizes[group]);
            }
        }
        let scratch = rounded(self.graph.nodes[node].scratch, Alignment::PLANNED);
        let peak = during.saturating_add(scratch).max(peak);
        Step { node, peak, live: during.saturating_sub(freed) }
    }

    /// Returns the input that an output would be written over.
    fn overwritten(
        &self,
        readers: &impl Fn(usize) -> u32,
        node: usize,
        output: usize,
        taken: &[usize],
    ) -> Option<usize> {
        let Source::Output { over, .. } = &self.graph.values[output].source else { return None };
        let fits = |&group: &usize| {
            let is_last = readers(group) == 1 && self.reads[node].contains(&(group, 1));
            is_last && self.sizes[group] == self.sizes[output] && !taken.contains(&group)
        };
        over.iter().map(|input| self.base[input.0]).find(fits)
    }

    fn execute(&self, mut next: State, step: Step) -> State {
        for &(group, _) in &self.reads[step.node] {
            next.readers[group] -= 1;
        }
        (next.peak, next.live) = (step.peak, step.live);
        next.set ^= key(step.node);
        next.ready.retain(|&node| node != step.node);
        for &follower in &self.followers[step.node] {
            next.waits_for[follower] -= 1;
            if next.waits_for[follower] == 0 {
                next.ready.push(follower);
            }
        }
        next.order.push(NodeId(step.node));
        next
    }
}

/// Returns a number for a node; the exclusive or of them is one for a set.
pub(super) fn key(node: usize) -> u128 {
    let mut random = SplitMix64::at(0, node as u64);
    u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
}
