//! [`Graph`]: captured operations, and [`Executable`]: a graph that can be launched.

use super::work::Submission;
use orlop_race::VectorClock;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Indices of nodes in a graph.
pub(crate) type NodeSet = BTreeSet<usize>;

/// A captured operation.
#[derive(Debug, Clone)]
pub(crate) struct GraphNode {
    /// The stream that it was captured in.
    pub(crate) branch: u64,
    /// The nodes that it follows.
    pub(crate) after: NodeSet,
    pub(crate) submission: Submission,
}

/// Captured operations and what they follow.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) device: usize,
    pub(crate) nodes: Vec<GraphNode>,
    /// Memory allocated by captured calls; it stays until the graph and its executables are destroyed.
    pub(crate) memory: Vec<usize>,
}

/// A graph made ready for launches.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) graph: Arc<Graph>,
    /// The end of the last launch: launches do not overlap.
    pub(crate) last: Option<SubmittedNode>,
}

/// Where a node of a launch was submitted.
#[derive(Debug, Clone)]
pub(crate) struct SubmittedNode {
    pub(crate) stream: u64,
    pub(crate) position: u64,
    pub(crate) clock: VectorClock,
}

impl Graph {
    pub(crate) fn new(device: usize) -> Self {
        Self { device, nodes: Vec::new(), memory: Vec::new() }
    }

    /// Adds a node and returns its index. It follows earlier nodes only.
    pub(crate) fn add(&mut self, node: GraphNode) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if every node is one of these or comes before one of them.
    pub(crate) fn is_covered_by(&self, last: &NodeSet) -> bool {
        let mut covered = last.clone();
        for index in (0..self.nodes.len()).rev() {
            if !covered.contains(&index) {
                return false;
            }
            covered.extend(&self.nodes[index].after);
        }
        true
    }
}

impl Executable {
    pub(crate) fn new(graph: &Arc<Graph>) -> Self {
        Self { graph: Arc::clone(graph), last: None }
    }
}
